"""The orders of the waiting queue that are compared, as vLLM is told of them."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Policy:
    """``scheduler_cls`` is vLLM's option, None its own scheduler.

    ``label_capacity`` is C_A, None the default. ``all_states``: without the retention of one recurrent state
    a trajectory, which ours have where the adapter has it.
    """

    name: str
    scheduler_cls: str | None = None
    label_capacity: int | None = None
    all_states: bool = False

    @property
    def title(self) -> str:
        parts = [self.name]
        if self.label_capacity is not None:
            parts.append(f"C_A {self.label_capacity}")
        if self.all_states:
            parts.append("all states")
        return ", ".join(parts)

    def settings(self) -> dict[str, Any]:
        """Fields of the engine's settings."""
        section: dict[str, Any] = {}
        if self.label_capacity is not None:
            section["label_capacity"] = self.label_capacity
        if self.all_states:
            section["one_state_per_trajectory"] = False
        return {
            "scheduler_cls": self.scheduler_cls,
            "additional_config": {"coresched": section} if section else {},
        }


FCFS = Policy("fcfs")
LPM = Policy("lpm", "bench.vllm_policies.longest_prefix_match.LongestPrefixMatch")
ROUTING_PREFIX = Policy("routing-prefix", "coresched_vllm.RoutingPrefix")
QUICK_POLICIES = (FCFS, LPM, ROUTING_PREFIX)
POLICIES = (
    *QUICK_POLICIES,
    Policy("routing-prefix", "coresched_vllm.RoutingPrefix", label_capacity=8),
    Policy("routing-prefix", "coresched_vllm.RoutingPrefix", all_states=True),
    Policy("routing-residency", "coresched_vllm.RoutingResidency"),
    Policy("routing-residency", "coresched_vllm.RoutingResidency", all_states=True),
)
