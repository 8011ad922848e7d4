"""Who must wait so that no live trajectory is evicted, and what may be evicted instead.

SGLang evicts what was used longest ago. Between two turns a live trajectory is as idle as one that has ended,
so that is often the wrong one. Before each pass the guard lets SGLang evict what no live trajectory needs, as
far as the pass will need room; and it holds back trajectories that are not cached while there is none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from coresched_engine.ordering import label_of

from coresched.core import ResidencyPolicy, TurnGaps
from coresched.core.guard import KV_GROWTH, STEPS_UNTIL_REPEATED
from coresched_sglang.pools import StatePool, kv_tokens_needed, state_pool
from coresched_sglang.residency import Residency


class Guard:
    """Of one scheduler, whose ``tree_cache`` ``residency`` follows.

    A trajectory is live while one of its requests waits or runs, and between two turns while ``gaps`` expects
    it back. Requests of trajectories in ``policy``, which are cached, are never held back; nor is any while
    nothing runs, so that the engine never stands still; nor, where the engine orders ``by_priority``, one
    that its priority puts before a cached one, which would have to wait with it.
    """

    def __init__(
        self,
        tree_cache: Any,
        residency: Residency,
        policy: ResidencyPolicy,
        gaps: TurnGaps,
        by_priority: bool = False,
    ) -> None:
        self._cache = tree_cache
        self._residency = residency
        self._policy = policy
        self._gaps = gaps
        self._by_priority = by_priority
        self._before_cached: frozenset[int] = frozenset()
        self._states: StatePool | None = state_pool(tree_cache)
        self._now = 0
        self._queue: Sequence[Any] = ()
        self._version: Hashable = None
        self._live_key: Hashable = None
        self._live_nodes: set[Any] = set()
        self._may_start = 0
        self._live_kv_key: Hashable = None
        self._live_kv_tokens = 0
        self.passes_held_back = 0
        """Passes in which a request had to wait."""
        self.states_evicted = 0
        """States that were evicted for a pass because no live trajectory needed them."""

    def before_pass(
        self, queue: Sequence[Any], running: Sequence[Any], places: int, now: int, version: Hashable
    ) -> None:
        """Make room for the requests that can start from ``queue``, which is in order.

        ``running`` are those that run, beside which there are ``places``. ``now`` is the clock of ``gaps``.
        ``version`` differs whenever other requests are in the queue.
        """
        self._queue, self._version, self._now = queue, version, now
        if self._by_priority:
            cached_places = (place for place in reversed(range(len(queue))) if self._is_cached(queue[place]))
            self._before_cached = frozenset(map(id, queue[: next(cached_places, 0)]))
        starting = min(len(queue), places)
        cached = sum(map(self._is_cached, queue[:starting]))
        self._may_start = cold = starting - cached
        if self._states is None or not starting:
            return
        missing = starting * self._states.slots_per_request - self._states.free
        if missing > 0:
            self._make_room_for_states(missing, running)
        held = len(self._policy)
        if cold and self._states.cold_starts(cold, held, len(running), cached) < cold:
            self._may_start = self._states.cold_starts(cold, len(self._live()), len(running), cached)

    def holds_back(self, adder: Any, request: Any) -> bool:
        """Whether SGLang's PrefillAdder must not admit the request in this pass."""
        if self._is_cached(request):
            return False
        if self._may_start > 0 and self._has_kv(adder, request):
            self._may_start -= 1
            return False
        self._may_start = 0
        if not adder.running_batch.reqs and not adder.can_run_list:
            return False
        if id(request) in self._before_cached:
            return False
        self.passes_held_back += 1
        return True

    def _is_cached(self, request: Any) -> bool:
        return label_of(request) in self._policy

    def _live(self) -> set[Any]:
        """The nodes of trajectories that are live and between two turns, or wait."""
        self._residency.refresh()
        key = (self._version, self._residency.changes, self._now // STEPS_UNTIL_REPEATED)
        if key != self._live_key:
            waiting = {label_of(request) for request in self._queue}
            self._live_key = key
            self._live_nodes = self._residency.nodes(
                label
                for label in self._residency.labels()
                if label in waiting or self._gaps.expected(label, self._now)
            )
        return self._live_nodes

    def _make_room_for_states(self, slots: int, running: Sequence[Any]) -> None:
        """Evict states that no trajectory is resumed from, then those of trajectories that are not live."""
        assert self._states is not None
        live = self._live()
        held = self._residency.nodes(self._residency.labels())
        # Each node that is held has one state. Those of running requests are locked, and so not evictable.
        held -= self._residency.nodes(label for each in running if (label := label_of(each)) is not None)
        superseded = self._cache.mamba_evictable_size() - len(held)
        if superseded > 0:
            ahead = self._states.allocator.size // 32  # so that not each pass has to lock all nodes
            slots -= self._evict_states(min(superseded, slots + ahead), kept=held)
        given_up = len(held - live)
        if slots > 0 and given_up:
            self._evict_states(min(given_up, slots), kept=held & live)

    def _evict_states(self, count: int, kept: Iterable[Any]) -> int:
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        with self._residency.kept(kept):
            evicted = int(self._cache.evict(EvictParams(num_tokens=0, mamba_num=count)).mamba_num_evicted)
        self.states_evicted += evicted
        return evicted

    def _has_kv(self, adder: Any, request: Any) -> bool:
        """Whether the KV of a cold request fits beside what runs and what is live."""
        needed = kv_tokens_needed(request)
        if adder.rem_total_tokens - KV_GROWTH * self._cache.full_evictable_size() >= needed:
            return True
        if adder.rem_total_tokens - KV_GROWTH * self._live_kv() < needed:
            return False
        with self._residency.kept(self._live()):
            self._make_room_for_kv(needed)
        return True

    def _live_kv(self) -> int:
        """Evictable tokens of KV that are live; found again only after changes, by a lock a trajectory."""
        live = self._live()
        if self._live_kv_key != self._live_key:
            self._live_kv_key = self._live_key
            evictable = self._cache.full_evictable_size()
            with self._residency.kept(live):
                self._live_kv_tokens = int(evictable - self._cache.full_evictable_size())
        return self._live_kv_tokens

    def _make_room_for_kv(self, tokens: int) -> None:
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        missing = tokens - self._cache.token_to_kv_pool_allocator.available_size()
        if missing > 0:
            self._cache.evict(EvictParams(num_tokens=missing))
