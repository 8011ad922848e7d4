"""The trajectory label of one of SGLang's requests."""

from __future__ import annotations

from typing import Any

from coresched_engine.labels import LabelReader

_HEALTH_CHECK = "HEALTH_CHECK"  # how SGLang begins the ids of the requests that it sends to itself
_ADVICE = "send the header x-smg-routing-key (OpenAI endpoints), or routing_key in the body (/generate)"


class Labels(LabelReader):
    """Reads labels once a request, and tells the operator of ``policy`` once that they do not come."""

    def __init__(self, policy: str) -> None:
        super().__init__(policy, _ADVICE)

    def of(self, request: Any) -> str | None:
        """``routing_key``, or None if it is not set or cannot be a label; never raises."""
        value = request.routing_key
        if not value and str(request.rid).startswith(_HEALTH_CHECK):
            return None
        return self.read(value, "routing_key")
