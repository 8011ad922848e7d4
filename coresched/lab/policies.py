"""Every policy of the simulator in a line: its rule, and where that comes from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["admission", "routing", "worker", "eviction", "pools", "environment"]
PAPER: Final = "arXiv:2611.16661"


@dataclass(frozen=True)
class Policy:
    """One name of a setting of `RunSettings`."""

    kind: Kind
    name: str
    rule: str
    source: str


POLICIES: Final = (
    Policy("admission", "submission", "in the order of submission", PAPER),
    Policy(
        "admission",
        "longest-expected-first",
        "the longest by history first; without one, among the median",
        "LPT, Graham 1969",
    ),
    Policy(
        "admission",
        "prefix-groups",
        "who shares a prefix together, groups by expected decoding over prefill",
        "BatchLLM, arXiv:2412.03594",
    ),
    Policy(
        "admission",
        "pause-resume",
        "between turns, the smallest contexts wait while all exceed the KV pool",
        "ThunderAgent, arXiv:2602.13692",
    ),
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
    Policy("worker", "hrrn", "most tokens computed since arrival per token still to prefill", "SGLang"),
    Policy("worker", "shortest-prefill-first", "the fewest tokens still to prefill", "SGLang"),
    Policy("worker", "routing-key", "labels that run, the most often first, then by label", "SGLang"),
    Policy(
        "worker",
        "plas",
        "trajectories least served first, in bands; who waited 8 times that goes to the first",
        "arXiv:2502.13965",
    ),
    Policy(
        "worker",
        "peek",
        "cached, then the first of prompts that begin alike, then its group; some by arrival",
        "arXiv:2607.02525",
    ),
    Policy("worker", "program-fcfs", "trajectories in the order of their first turn", "arXiv:2511.02230"),
    Policy(
        "environment",
        "fcfs",
        "in the order of request",
        "any executor; ARL-Tangram for jobs of one slot",
    ),
    Policy("environment", "caas", "by band of time, then most turns, then shortest inference", PAPER),
    Policy("environment", "sjf", "the shortest first, known beforehand: an oracle", "Smith 1956"),
    Policy(
        "environment",
        "sjf-expected",
        "the shortest first, by the median of jobs like it so far",
        "SAGA's prediction, arXiv:2605.00528",
    ),
    Policy(
        "environment",
        "longest-remaining",
        "of the trajectory with most expected to do; without noise an oracle",
        "LPT, Graham 1969",
    ),
    Policy("eviction", "lru", "the least recently used entry of those that no request uses", "SGLang"),
    Policy("eviction", "lfu", "the entry that has served fewest turns, then lru", "SGLang"),
    Policy("eviction", "slru", "entries that have served one turn, by lru, then the others", "SGLang"),
    Policy("eviction", "smallest-context", "the entry with the fewest tokens, then lru", "ours"),
    Policy(
        "eviction",
        "marconi",
        "the least recency + prefill time spared per token held, each scaled to 0..1",
        "arXiv:2411.19379",
    ),
    Policy("eviction", "peek", "entries that no waiting request would use, by lru, then the others", PAPER),
    Policy(
        "eviction",
        "saga",
        "the farthest next use: the tool's median time from now, never after a last turn",
        "arXiv:2605.00528",
    ),
    Policy(
        "eviction",
        "mori",
        "the largest share of time in tools over 5 turns, ended trajectories first",
        "arXiv:2606.00866",
    ),
    Policy("eviction", "belady", "the farthest next use in the trace: an oracle, no rival", "Belady 1966"),
    Policy("pools", "static", "KV and state keep the sizes that the state ratio gives them", "SGLang"),
    Policy(
        "pools",
        "avmp",
        "a full pool takes a slot's worth from the other while that has over 30% free",
        "codepawl/cachepawl",
    ),
)


LEFT_OUT: Final = (
    (
        "CONCUR",
        "admission by AIMD on KV use and hit rate: what it begins with and how often it acts",
        "2601.22705",
    ),
    (
        "ARL-Tangram",
        "environment jobs that use several slots: no trace says what they gain by it",
        "2603.13019",
    ),
    ("SAGA", "its order of sessions; its prediction is in sjf-expected", "2605.00528"),
    ("Preble", "its order inside a worker, of its own SGLang", "2407.00023"),
)
"""Systems without a policy here, what could not be found of them, and their arXiv number."""


def policy_lines() -> Iterator[str]:
    """A heading for each kind, and its policies; then what is not there."""
    name_width = max(len(policy.name) for policy in POLICIES)
    kind = None
    for policy in POLICIES:
        if policy.kind != kind:
            kind = policy.kind
            yield f"{kind}:"
        yield f"  {policy.name:<{name_width}}  {policy.rule} [{policy.source}]"
    yield "left out, not found precisely:"
    for system, missing, number in LEFT_OUT:
        yield f"  {system:<{name_width}}  {missing} [arXiv:{number}]"
