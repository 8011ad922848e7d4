"""The trajectory label of a request, and a warning where labels do not come."""

from __future__ import annotations

import logging
from typing import Any

from coresched.core.checks import check_label

logger = logging.getLogger(__name__)

UNLABELLED_BEFORE_WARNING = 16
"""More than a server's own warm-up sends."""
_HEALTH_CHECK = "HEALTH_CHECK"  # how SGLang begins the ids of the requests that it sends to itself


class Labels:
    """Reads labels once a request, and tells the operator of ``policy`` once that they do not come."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self.refused = 0
        """Requests whose label was no label by `check_label`, and which count as unlabelled."""
        self._seen = 0
        self._unlabelled = 0

    def of(self, request: Any) -> str | None:
        """``routing_key``, or None if it is not set or cannot be a label; never raises."""
        value = request.routing_key
        if value is None or value == "":
            self._without_label(str(request.rid))
            return None
        self._seen += 1
        try:
            return check_label(value, "routing_key")
        except (TypeError, ValueError) as error:
            self.refused += 1
            if self.refused == 1:
                logger.warning(
                    "a request is scheduled as unlabelled: %s; further ones are counted, not logged", error
                )
            return None

    def _without_label(self, request_id: str) -> None:
        if request_id.startswith(_HEALTH_CHECK):
            return
        self._seen += 1
        self._unlabelled += 1
        if self._unlabelled == UNLABELLED_BEFORE_WARNING:
            logger.warning(
                "%d of the first %d requests have no trajectory label; %s serves these first "
                "come, first served: send the header x-smg-routing-key (OpenAI endpoints), or routing_key in "
                "the body (/generate)",
                self._unlabelled,
                self._seen,
                self._policy,
            )
