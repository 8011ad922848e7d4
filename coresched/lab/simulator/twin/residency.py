"""Routing-residency inside one worker: who is cached, who is expected back, and who must wait."""

from collections.abc import Sequence
from typing import Any

from coresched.core.reference import ReferenceResidencyPolicy, ReferenceTurnGaps
from coresched.lab.simulator.twin.pools import CachePools
from coresched.lab.simulator.workload import RequestColumns


class Residency:
    """The tier of the cached, and the guard where the worker has one.

    The clock is the engine's steps: decode steps and prefill batches. A trajectory is live while it waits or
    runs, and while the gaps expect it back.
    """

    def __init__(self, workload: RequestColumns, pools: CachePools, guarded: bool) -> None:
        self.labels = workload.labels
        self.pools = pools
        self.policy = ReferenceResidencyPolicy()
        self.gaps = ReferenceTurnGaps() if guarded else None
        self.waiting: set[int] = set()
        self.now = 0
        self.longest_gap = -1
        self.idle_since: dict[int, int] = {}
        pools.evicted = lambda sample: self.policy.evicted(self._label(sample))
        if guarded:
            pools.is_live = self._is_live

    def tick(self, now: int) -> None:
        """The clock is at ``now``; who has been idle for too long is live no more."""
        self.now = now
        if self.gaps is not None:
            self.longest_gap = self.gaps.limit

    def arrived(self, sample: int) -> None:
        """A request of the sample waits."""
        self.waiting.add(sample)

    def started(self, sample: int) -> None:
        """It waits no more."""
        self.waiting.discard(sample)

    def order(self, waiting: Sequence[Any], entered: int) -> list[Any]:
        """Sort the waiting queue, whose last ``entered`` requests are seen for the first time."""
        if self.gaps is not None and entered:
            for request in waiting[-entered:]:
                self.gaps.began(request.label, self.now)
            self.tick(self.now)
        return self.policy.order(waiting)

    def finished(self, sample: int) -> None:
        """The sample's turn has ended and left an entry."""
        self.policy.resident(self._label(sample))
        self.idle_since[sample] = self.now
        if self.gaps is not None:
            self.gaps.ended(self._label(sample), self.now)

    def release(self, sample: int) -> None:
        """The sample has finished, and the pools hold nothing of it."""
        self.policy.evicted(self._label(sample))
        if self.gaps is not None:
            self.gaps.forget(self._label(sample))

    def holds_back(self, sample: int, final_tokens: int) -> bool:
        """Whether the guard lets the sample's request wait while others run."""
        return (
            self.gaps is not None
            and sample not in self.pools.tokens
            and not self.pools.has_room_beside_live(sample, final_tokens)
        )

    def _is_live(self, sample: int) -> bool:
        """Of an idle entry, as of the last tick."""
        return sample in self.waiting or self.now - self.idle_since[sample] <= self.longest_gap

    def _label(self, sample: int) -> str:
        label = self.labels[sample]
        assert label is not None
        return label
