"""Who must wait so that no live trajectory is evicted, and whose blocks are spared meanwhile.

vLLM evicts what was used longest ago. Between two turns a live trajectory is as idle as one that has ended,
so that is often the wrong one. Before each pass the guard moves live trajectories away from where the pass
will take its blocks, and holds back those that are not cached while there is no room beside the live ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from coresched_engine.ordering import label_of

from coresched.core import ResidencyPolicy, TurnGaps
from coresched.core.guard import KV_GROWTH, STEPS_UNTIL_REPEATED
from coresched_vllm.blocks import Groups
from coresched_vllm.residency import Residency


class Guard:
    """Of one scheduler, the pool of whose ``groups`` ``residency`` follows.

    A trajectory is live while one of its requests waits or runs, and between two turns while ``gaps`` expects
    it back. Requests of trajectories in ``policy``, which are cached, are never held back; nor is the first
    of the queue while nothing runs, so that the engine never stands still. At most ``most_running`` requests
    run, and a pass computes at most ``tokens_a_pass``. ``prefix_hit(request)`` is what a request would take
    from the cache now, in tokens.
    """

    def __init__(
        self,
        groups: Groups,
        residency: Residency,
        policy: ResidencyPolicy,
        gaps: TurnGaps,
        most_running: int,
        tokens_a_pass: int,
        prefix_hit: Callable[[Any], int],
    ) -> None:
        self._groups = groups
        self._pool = groups.pool
        self._residency = residency
        self._policy = policy
        self._gaps = gaps
        self._most_running = most_running
        self._prefix_hit = prefix_hit
        self._running_states = sum(group.running_states for group in groups.recurrent)
        self._tokens_a_pass = tokens_a_pass
        self._waiting: Sequence[Any] = ()
        self._running: Sequence[Any] = ()
        self._now = 0
        self._live_key: tuple[int, ...] = ()
        self._found_key: tuple[int, ...] | None = None
        self._found: Set[str] = frozenset()
        self.passes_held_back = 0
        """Passes in which a request had to wait."""
        self.moved_back = 0
        """Times that a live trajectory was next to be evicted and was moved behind all others."""

    def held_back(
        self,
        preempted: Sequence[Any],
        ordered: Sequence[Any],
        running: Sequence[Any],
        now: int,
        version: tuple[int, ...],
    ) -> int:
        """How many of ``ordered``, from its end, must not run in the coming pass.

        ``ordered`` is in the policy's order; ``preempted`` go before it. ``now`` is the clock of the gaps.
        ``version`` differs whenever other requests wait or run.
        """
        places = max(0, self._most_running - len(running) - len(preempted))
        starting = ordered[:places]
        may_start = next(
            (place for place, each in enumerate(starting) if not self._is_cached(each)), len(starting)
        )
        self._live_key = (*version, self._residency.changes, now // STEPS_UNTIL_REPEATED)
        self._waiting, self._running, self._now = ordered, running, now
        if may_start < len(starting):
            first = [*preempted, *starting[:may_start]]
            may_start += self._cold_starts(first, starting[may_start:])
        self._spare(len(preempted) + may_start)
        if may_start == len(starting):  # it is the places that the others wait for
            return 0
        self.passes_held_back += 1
        return len(ordered) - may_start

    def _cold_starts(self, first: Sequence[Any], cold: Sequence[Any]) -> int:
        """How many of ``cold``, which are not cached, may start beside ``first`` and what runs."""
        room = self._room(first) - sum(map(self._needed, first)) - sum(map(self._still_needed, self._running))
        count = 0
        for request in cold:
            needed = self._needed(request)
            if needed > room and needed - self._used_by_others(request) > room:
                break
            room -= needed
            count += 1
        return count or int(not self._running and not first)

    def _is_cached(self, request: Any) -> bool:
        return label_of(request) in self._policy

    def _live(self) -> Set[str]:
        """Trajectories that are held and live, and none of whose requests runs."""
        if self._live_key != self._found_key:
            self._found_key = self._live_key
            waiting = {label_of(request) for request in self._waiting}
            runs = {label_of(request) for request in self._running}
            self._found = {
                label
                for label in self._residency.labels()
                if label not in runs and (label in waiting or self._gaps.expected(label, self._now))
            }
        return self._found

    def _room(self, first: Iterable[Any]) -> int:
        """Blocks that are free beside what live trajectories hold and will hold."""
        starting = {label_of(request) for request in first}
        free = self._pool.get_num_free_blocks()
        reserved = (KV_GROWTH - 1) * (self._groups.usable - free)
        for label in self._live():
            held = self._residency.held(label)
            reserved += held.kv_blocks * (1 if label in starting else KV_GROWTH) + held.states
        return int(free - reserved)

    def _needed(self, request: Any) -> int:
        """Blocks that a request takes where it starts, beyond those that its trajectory holds."""
        label = label_of(request)
        held = self._residency.held(label).tokens if label is not None and label in self._policy else 0
        return self._running_states + self._kv_blocks(request.num_tokens + 1, held)

    def _still_needed(self, request: Any) -> int:
        """Blocks that a running request takes until its next token."""
        return self._kv_blocks(request.num_tokens + 1, request.num_computed_tokens)

    def _kv_blocks(self, tokens: int, but: int) -> int:
        count = 0
        for group in self._groups.attention:
            blocks = -(-tokens // group.block_size) - -(-but // group.block_size)
            count += min(blocks, group.window_blocks or blocks)
        return max(0, count)

    def _used_by_others(self, request: Any) -> int:
        """Blocks of its prefix that running requests use, so that it needs none of its own for them."""
        hit = self._prefix_hit(request)
        return sum(hit // group.block_size for group in self._groups.attention if not group.window_blocks)

    def _spare(self, starting: int) -> None:
        """Move live trajectories behind others where the coming pass would take its blocks.

        ``starting`` requests may start in it. Where there is no room for all that are live, those of the next
        to be evicted that were used longest ago are not spared.
        """
        count = len(self._running) + starting * self._running_states
        count += sum(self._tokens_a_pass // group.block_size + 1 for group in self._groups.attention)
        next_evicted = self._next_evicted(count)
        if not next_evicted:
            return
        live = self._live()
        lost = [label for label in next_evicted if label in live]
        if not lost:
            return
        spared = self._pool.get_num_free_blocks() - count
        spared -= sum(self._held_blocks(label) for label in live - set(lost))
        for label in reversed(lost):
            spared -= self._held_blocks(label)
            if spared < 0:
                break
            blocks = list(self._residency.held(label).blocks)
            self._pool.touch(blocks)
            self._pool.free_blocks(blocks)
            self.moved_back += 1

    def _held_blocks(self, label: str) -> int:
        held = self._residency.held(label)
        return held.kv_blocks + held.states

    def _next_evicted(self, count: int) -> list[str]:
        """Trajectories that lose a watched block to the next ``count`` of the queue, in its order."""
        found: dict[str, None] = {}
        watched_by = self._residency.watched_by
        block = self._pool.free_block_queue.fake_free_list_head.next_free_block
        while count > 0 and block is not None:  # at its end the queue has a block of no number
            if labels := watched_by(block.block_id):  # few are watched, and this is in each pass
                found.update(dict.fromkeys(labels))
            block = block.next_free_block
            count -= 1
        return list(found)
