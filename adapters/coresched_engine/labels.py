"""Trajectory labels as an engine's requests carry them, and a warning where they do not come."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any

from coresched.core.checks import check_label

logger = logging.getLogger(__name__)

UNLABELLED_BEFORE_WARNING = 16
"""More than a server's own warm-up sends."""


class LabelReader(ABC):
    """Checks labels once a request, and tells the operator of ``policy`` once that they do not come.

    ``advice`` ends that line: how a label is sent.
    """

    def __init__(self, policy: str, advice: str) -> None:
        self._policy = policy
        self._advice = advice
        self.refused = 0
        """Requests whose label was no label by `check_label`, and which count as unlabelled."""
        self._seen = 0
        self._unlabelled = 0

    @abstractmethod
    def of(self, request: Any) -> str | None:
        """The label of one of the engine's requests; None if it is not set or cannot be one. Never raises."""

    def read(self, value: object, field: str) -> str | None:
        """The label in ``field`` of one request, or None if it is not set or cannot be one; never raises."""
        self._seen += 1
        if value is None or value == "":
            self._without_label()
            return None
        try:
            return check_label(value, field)
        except (TypeError, ValueError) as error:
            self.refused += 1
            if self.refused == 1:
                logger.warning(
                    "a request is scheduled as unlabelled: %s; further ones are counted, not logged", error
                )
            return None

    def _without_label(self) -> None:
        self._unlabelled += 1
        if self._unlabelled == UNLABELLED_BEFORE_WARNING:
            logger.warning(
                "%d of the first %d requests have no trajectory label; %s serves these first come, first "
                "served: %s",
                self._unlabelled,
                self._seen,
                self._policy,
                self._advice,
            )
