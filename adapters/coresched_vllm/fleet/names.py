"""What the ladder's run with routing-prefix is called, and what it gives vLLM."""

from typing import Any, Final

from coresched_vllm.names import ROUTING_PREFIX

POLICY: Final = "routing-prefix"
ORDERED: Final[dict[str, Any]] = {"scheduler_cls": ROUTING_PREFIX}
