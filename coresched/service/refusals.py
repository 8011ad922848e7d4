"""Refused calls of this process: counted by call and status, and logged at a bounded rate."""

from __future__ import annotations

import logging
import time
from collections import Counter

from coresched.logs import event
from coresched.service.refusal import RefusedError

LINES = 10
PERIOD_S = 10.0
"""At most LINES refusals are logged in so many seconds; the next line tells how many were not."""

_logger = logging.getLogger(__name__)


class Refusals:
    """`counts` is by the call's name and the status code's."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._began = -PERIOD_S
        self._logged = 0
        self._left_out = 0

    def note(self, rpc: str, refused: RefusedError) -> None:
        """A call of this name was refused."""
        code = refused.code.name
        self.counts[rpc, code] += 1
        if _logger.isEnabledFor(logging.INFO):
            self._log(rpc, code, refused)

    def _log(self, rpc: str, code: str, refused: RefusedError) -> None:
        now = time.monotonic()
        if now - self._began >= PERIOD_S:
            self._began = now
            self._logged = 0
        if self._logged == LINES:
            self._left_out += 1
            return
        self._logged += 1
        fields: dict[str, object] = {"rpc": rpc, "code": code, "field": refused.field}
        line = f"{rpc} refused: {code}"
        if refused.field:
            line += f", {refused.field}"
        if _logger.isEnabledFor(logging.DEBUG):  # the sentence quotes labels and names of samples
            fields["refusal"] = refused.message
            line += f": {refused.message}"
        if self._left_out:
            fields["left_out"] = self._left_out
            line += f" ({self._left_out} other refusals were not logged)"
            self._left_out = 0
        event(_logger, logging.INFO, "refused", line, **fields)


refusals = Refusals()
"""Of all servers of this process, as there is one."""
