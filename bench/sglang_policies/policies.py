"""The policies that are compared, as the server is told of them."""

from dataclasses import dataclass

LABEL_CAPACITY = "CORESCHED_LABEL_CAPACITY"


@dataclass(frozen=True)
class Policy:
    """``--schedule-policy``, and C_A of routing-prefix; None: its default."""

    name: str
    label_capacity: int | None = None

    @property
    def title(self) -> str:
        return self.name if self.label_capacity is None else f"{self.name}, C_A {self.label_capacity}"

    def environment(self) -> dict[str, str]:
        return {} if self.label_capacity is None else {LABEL_CAPACITY: str(self.label_capacity)}


SGLANG = tuple(map(Policy, ("fcfs", "lpm", "dfs-weight", "routing-key", "hrrn", "shortest-prefill-first")))
ROUTING_PREFIX = Policy("routing-prefix")
CAPACITIES = (4, 8, 12, 24, 48, 1000)
ROUTING_RESIDENCY = Policy("routing-residency")
POLICIES = (
    *SGLANG,
    ROUTING_PREFIX,
    *(Policy("routing-prefix", capacity) for capacity in CAPACITIES),
    ROUTING_RESIDENCY,
)
QUICK_POLICIES = (Policy("fcfs"), Policy("lpm"), ROUTING_PREFIX, ROUTING_RESIDENCY)
