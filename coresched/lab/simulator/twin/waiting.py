"""One worker's waiting queue: who is next by the worker's policy, and what finding that out costs."""

from collections.abc import Callable
from typing import Any, Protocol

from coresched.core.reference import ReferencePrefixPolicy, ReferenceWaiting
from coresched.lab.simulator.model import StepTimes
from coresched.lab.simulator.orders.order import LONG_QUEUE
from coresched.lab.simulator.orders.registry import ordered_queue
from coresched.lab.simulator.settings import RESIDENCY_POLICIES
from coresched.lab.simulator.twin.pools import CachePools
from coresched.lab.simulator.twin.residency import Residency
from coresched.lab.simulator.workload import RequestColumns


class WorkerSettings(Protocol):
    """What of the settings of a run concerns a worker."""

    @property
    def worker_policy(self) -> str: ...
    @property
    def label_capacity(self) -> int: ...


class Queued(Protocol):
    """A request of the waiting queue, `core.prefix.Waiting` or its twin."""

    @property
    def id(self) -> str: ...
    @property
    def label(self) -> str | None: ...


class PrefixPolicy(Protocol):
    """RP, `core.prefix.RoutingPrefixPolicy` or its twin."""

    def order(self, waiting: list[Any], prefix_hit: Callable[[Any], int]) -> list[Any]: ...
    def admitted(self, label: str | None) -> None: ...
    def forget(self, label: str) -> None: ...


class WaitingQueue:
    """The requests that no batch has taken yet.

    The worker tells it of each arrival, admission and end, of samples that have finished and of its steps.
    """

    prefix_policy_class: Callable[[int], PrefixPolicy] = ReferencePrefixPolicy
    queued_class: Callable[[str, str | None, float], Queued] = ReferenceWaiting

    def __init__(
        self, workload: RequestColumns, pools: CachePools, settings: WorkerSettings, times: StepTimes
    ) -> None:
        self.workload = workload
        self.pools = pools
        self.policy = settings.worker_policy
        self.times = times
        self.prefix_policy = self.prefix_policy_class(settings.label_capacity)
        self.residency: Residency | None = None
        if self.policy in RESIDENCY_POLICIES:
            self.residency = Residency(workload, pools, guarded=self.policy == "routing-residency")
        self.plain = ordered_queue(self.policy, workload, times, self._match)
        self.requests: list[Queued] = []
        """In the order of the last pass; the last ``entered`` of them no pass has seen."""
        self.entered = 0
        self.turn_of: dict[int, int] = {}

    def arrived(self, sample: int, turn: int, t: float) -> None:
        self.turn_of[sample] = turn
        self.requests.append(self.queued_class(str(sample), self.workload.labels[sample], t))
        self.entered += 1
        if self.residency is not None:
            self.residency.arrived(sample)
        if self.plain is not None:
            self.plain.arrived(sample, turn, t)

    def at(self, place: int) -> int:
        """The sample whose request is at that place."""
        return int(self.requests[place].id)

    def holds_back(self, sample: int, final_tokens: int) -> bool:
        """Whether the sample's request must wait while others run, though there is room for it."""
        return self.residency is not None and self.residency.holds_back(sample, final_tokens)

    def started(self, sample: int) -> None:
        """The sample's request is in the batch that is being built."""
        if self.residency is not None:
            self.residency.started(sample)

    def admitted(self, count: int, new_tokens: int, t: float) -> None:
        """The first ``count`` requests leave for a batch, which computes ``new_tokens`` of prompts in all."""
        if self.policy == "routing-prefix":
            for request in self.requests[:count]:
                self.prefix_policy.admitted(request.label)
        if self.plain is not None:
            for place in range(count):
                self.plain.admitted(self.at(place), t)
            self.plain.prefilled(new_tokens)
        del self.requests[:count]

    def ended(self, sample: int, t: float) -> None:
        """The sample's turn has ended and left an entry."""
        if self.residency is not None:
            self.residency.finished(sample)
        if self.plain is not None:
            self.plain.ended(sample, t)

    def release(self, sample: int) -> None:
        """The sample has finished, and the pools hold nothing of it."""
        label = self.workload.labels[sample]
        if label is not None:
            self.prefix_policy.forget(label)
        if self.residency is not None:
            self.residency.release(sample)

    def tick(self, now: int) -> None:
        """The engine has made ``now`` steps."""
        if self.residency is not None:
            self.residency.tick(now)

    # --- the order

    def order(self, t: float) -> float:
        """Sort by the worker's policy; returns what that costs, in seconds."""
        count, entered = len(self.requests), self.entered
        self.entered = 0
        if self.policy == "routing-prefix":
            return self._order_by_prefix_policy()
        if self.residency is not None:
            self.requests = self.residency.order(self.requests, entered)
            return self.times.queue_entry_s * count
        if self.plain is not None:
            queued = {int(request.id): request for request in self.requests}
            samples, cost = self.plain.arrange(list(queued), t)
            self.requests = [queued[sample] for sample in samples]
            return cost
        if self.policy == "fcfs" or (self.policy == "lpm" and count > LONG_QUEUE):
            return 0.0
        return self._order_by_hits()

    def _order_by_prefix_policy(self) -> float:
        asked: list[int] = []

        def prefix_hit(request: Queued) -> int:
            asked.append(self._match(int(request.id)))
            return asked[-1]

        self.requests = self.prefix_policy.order(self.requests, prefix_hit)
        cost = 0.0
        for hit in asked:
            cost += self.times.match_s + self.times.match_token_s * hit
        return cost + self.times.queue_entry_s * len(self.requests)

    def _order_by_hits(self) -> float:
        times, count = self.times, len(self.requests)
        hits = [self._match(self.at(place)) for place in range(count)]
        cost = count * (times.match_s + times.queue_entry_s)
        for hit in hits:
            cost += times.match_token_s * hit
        if self.policy == "lpm":
            keys = [(-hit, 0) for hit in hits]
        else:
            cost += times.tree_node_s * self.pools.tree_nodes
            keys = self._depth_first_keys(hits)
        order = sorted(range(count), key=keys.__getitem__)
        self.requests = [self.requests[position] for position in order]
        return cost

    def _depth_first_keys(self, hits: list[int]) -> list[tuple[int, int]]:
        """dfs-weight: the prefix-tree branch with most waiting requests first, unmatched requests last.

        Trajectories of one group are siblings of equal weight; they keep their order.
        """
        weight: dict[int, int] = {}
        first: dict[int, int] = {}
        groups = [self.workload.group[int(request.id)] for request in self.requests]
        for position, (group, hit) in enumerate(zip(groups, hits, strict=True)):
            if hit:
                weight[group] = weight.get(group, 0) + 1
                first.setdefault(group, position)
        last = (1, 0)
        return [
            (-weight[group], first[group]) if hit else last for group, hit in zip(groups, hits, strict=True)
        ]

    def _match(self, sample: int) -> int:
        """Query the prefix cache, which refreshes the entry."""
        self.pools.touch(sample)
        return self.pools.hit(sample, self.workload.prompt_tokens[self.turn_of[sample]])
