"""Every policy of the simulator in a line: its rule, and where that comes from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["routing", "worker", "environment"]
PAPER: Final = "arXiv:2611.16661"


@dataclass(frozen=True)
class Policy:
    """One name of a setting of `RunSettings`."""

    kind: Kind
    name: str
    rule: str
    source: str


POLICIES: Final = (
    Policy("routing", "round-robin", "each worker in turn", "any router"),
    Policy(
        "routing",
        "cache-aware",
        "longest prefix sent before, the smallest tree if short, the least loaded if uneven",
        "sglang-router",
    ),
    Policy("routing", "consistent-hash", "the label's worker on a hash ring", "Karger 1997"),
    Policy("routing", "lbch", "the first on the label's ring with L <= alpha (L_tot + 1) / W", PAPER),
    Policy("routing", "power-of-two", "the less loaded of two drawn at random", "smg, Mitzenmacher 2001"),
    Policy("routing", "least-loaded", "the fewest requests in flight", "smg least_load, nginx"),
    Policy(
        "routing",
        "prefix-hash",
        "home if L <= max(alpha mean, mean + 10), else the least loaded that is",
        "smg 1.13 prefix_hash",
    ),
    Policy("routing", "prefix-hash-strict", "the same with L <= alpha mean", "smg, threshold 0"),
    Policy(
        "routing",
        "bounded-ring",
        "home if L <= its places, rounded up, else the next in the label's own shuffle",
        "Envoy RING_HASH",
    ),
    Policy(
        "routing",
        "sticky-least-loaded",
        "first turn to the fewest trajectories, then always there",
        "vllm-router, prime-rl",
    ),
    Policy(
        "routing",
        "sticky-table",
        "first turn to the least loaded; moves a short prompt from twice the load",
        "vllm-router sticky_table",
    ),
    Policy(
        "routing",
        "dualmap",
        "of two hashed workers the longer prefix, the calmer if it would be late",
        "arXiv:2602.06502",
    ),
    Policy(
        "routing",
        "preble",
        "mostly sent before: to where that is; mostly new: to the least work",
        "arXiv:2407.00023",
    ),
    Policy(
        "routing",
        "autellix-locality",
        "up to 2,048 tokens to the least loaded, longer ones to their trajectory's",
        "arXiv:2502.13965",
    ),
    Policy(
        "routing",
        "sticky-bounded",
        "first turn to the least loaded, then there while L <= alpha (L_tot + 1) / W",
        "ours",
    ),
    Policy("worker", "fcfs", "in the order of arrival", "SGLang"),
    Policy("worker", "lpm", "the longest cached prefix first, fcfs beyond 128 waiting", "SGLang"),
    Policy("worker", "dfs-weight", "along the prefix tree, the subtree with most waiting first", "SGLang"),
    Policy("worker", "routing-prefix", "labels served lately first, by cached prefix; then fcfs", PAPER),
    Policy(
        "worker",
        "routing-residency",
        "cached trajectories first; no live one is evicted for one that is not cached",
        "ours",
    ),
    Policy("worker", "routing-residency-unguarded", "the same without that guard, for comparison", "ours"),
    Policy("environment", "fcfs", "in the order of request", "any executor"),
    Policy("environment", "caas", "by band of time, then most turns, then shortest inference", PAPER),
)


def policy_lines() -> Iterator[str]:
    """A heading for each kind, and its policies."""
    name_width = max(len(policy.name) for policy in POLICIES)
    kind = None
    for policy in POLICIES:
        if policy.kind != kind:
            kind = policy.kind
            yield f"{kind}:"
        yield f"  {policy.name:<{name_width}}  {policy.rule} [{policy.source}]"
