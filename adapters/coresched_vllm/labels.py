"""The trajectory label of one of vLLM's requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coresched_engine.labels import LabelReader

ARGUMENTS = ("trajectory", "session_id")
"""Names in `extra_args` of the sampling parameters (`vllm_xargs` in a body), the first prevailing."""

_ADVICE = (
    'send the header X-Session-ID, or session_id or vllm_xargs {"trajectory": LABEL} in the body; in Python, '
    'SamplingParams(extra_args={"trajectory": LABEL})'
)


class Labels(LabelReader):
    """Reads labels once a request, and tells the operator of ``policy`` once that they do not come."""

    def __init__(self, policy: str) -> None:
        super().__init__(policy, _ADVICE)

    def of(self, request: Any) -> str | None:
        """``session_id``, else the first of `ARGUMENTS`; None if none is set or that one cannot be a label.

        Never raises.
        """
        if request.session_id is not None and request.session_id != "":
            return self.read(request.session_id, "session_id")
        arguments = getattr(request.sampling_params, "extra_args", None)  # pooling has no sampling
        if isinstance(arguments, Mapping):
            for name in ARGUMENTS:
                if arguments.get(name) is not None:
                    return self.read(arguments[name], name)
        return self.read(None, "session_id")
