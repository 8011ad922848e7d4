"""Which trajectories vLLM's block pool can resume, learned from what it caches and hands out again.

A cached block is lost when the pool hands it out, so the policy is told of a trajectory's loss when one of a
few blocks of it, which are evicted before its others, is among those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from coresched.core import ResidencyPolicy
from coresched_vllm.blocks import Group, Groups


@dataclass(slots=True, eq=False)
class Held:
    """What the pool was given of one trajectory, to be resumed at ``tokens``."""

    tokens: int
    watched: list[tuple[Any, Any, int]]
    """Blocks that are evicted before the others, their hashes in the cache, and their groups' numbers."""
    kv: list[list[Any]]
    """Of each group with attention, the blocks up to there, by their tokens."""
    kv_blocks: int
    """How many of these are its own, and not of a prefix that others had before."""
    states: int
    """Blocks of recurrent states, as many as groups of them."""
    before: Held | None = None
    """What it can be resumed from if the next prompt comes without the reply that this lies in."""

    @property
    def blocks(self) -> Iterator[Any]:
        """All, in the order in which they are to be evicted."""
        for blocks in self.kv:
            yield from (block for block in reversed(blocks) if not block.is_null)
        yield from (block for block, _, _ in self.watched[len(self.kv) :])


class Residency:
    """Keeps ``policy`` told of what the pool of ``groups`` holds.

    A trajectory is held while it can be resumed where its last prompt or reply ends, to a block that vLLM
    keeps; a model without recurrent states and windows, which can be resumed anywhere, while at least half of
    its tokens are there. ``block_hash(key)`` is a cached block's hash without the group.
    """

    def __init__(self, groups: Groups, policy: ResidencyPolicy, block_hash: Callable[[Any], Any]) -> None:
        self._groups = groups
        self._pool = groups.pool
        self._policy = policy
        self._block_hash = block_hash
        self._sparse = [group for group in groups.all if group.recurrent or group.window_blocks]
        self._finest = min(groups.all, key=lambda group: group.block_size)
        self._held: dict[str, Held] = {}
        self._watched: dict[int, set[str]] = {}
        self._shared: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._look_again: set[str] = set()
        self.lost = 0
        """How often the cache lost what it held of a trajectory."""
        self.changes = 0
        """Grows whenever something may have entered or left the cache."""
        hand_out, evict = self._pool.get_new_blocks, self._pool.evict_blocks

        def get_new_blocks(*args: Any, **kwargs: Any) -> Any:
            blocks = hand_out(*args, **kwargs)
            for block in blocks:
                if block.block_id in self._watched:
                    self._look_again |= self._watched[block.block_id]
            return blocks

        def evict_blocks(*args: Any, **kwargs: Any) -> Any:
            evict(*args, **kwargs)
            self.look_at_all()

        self._pool.get_new_blocks, self._pool.evict_blocks = get_new_blocks, evict_blocks

    def look_at_all(self) -> None:
        """Anything may have left the cache."""
        self._look_again |= self._held.keys()

    def refresh(self) -> None:
        """Ask the pool what is left of the trajectories of which it handed out blocks."""
        if not self._look_again:
            return
        for label in self._look_again & self._held.keys():
            if self._is_left(label):
                continue
            before = self._drop(label).before
            if before is not None:
                self._hold(label, before)
                if self._is_left(label):
                    continue
                self._drop(label)
            self._shared.pop(label, None)
            self._policy.evicted(label)
            self.lost += 1
        self._look_again.clear()
        self.changes += 1

    def labels(self) -> Iterable[str]:
        return self._held.keys()

    def held(self, label: str) -> Held:
        return self._held[label]

    def watched_by(self, block_id: int) -> Iterable[str]:
        """The trajectories that are lost with this block."""
        return self._watched.get(block_id, ())

    def admitted(self, request: Any, label: str, hit_tokens: int) -> None:
        """Of a pass that began to run the request, with so many tokens from the cache."""
        self._seen.pop(request.request_id, None)
        if label not in self._held:
            self._shared[label] = hit_tokens

    def observe(self, request: Any, label: str) -> None:
        """After a pass that computed something of the request."""
        name = request.request_id
        seen = self._finest.cached_blocks(name)  # a block of another group ends where one of this does
        if seen == self._seen.get(name):
            return
        self._seen[name] = seen
        tokens = self._resumed_at(request)
        held = self._held.get(label)
        if not tokens or (held is not None and held.tokens == tokens and self._is_left(label)):
            return
        if (found := self._found(name, label, tokens)) is None:
            return
        if held is not None:
            self._drop(label)
            if tokens > request.num_prompt_tokens and self._sparse:
                found.before = held.before or held
        self._hold(label, found)
        self._policy.resident(label)
        self.changes += 1

    def forget(self, request_id: str, label: str) -> None:
        """Of a request that has finished."""
        self._seen.pop(request_id, None)
        if label not in self._held:
            self._shared.pop(label, None)

    def _resumed_at(self, request: Any) -> int:
        """Tokens at which the trajectory's next turn is resumed; 0 if the request holds nothing for that."""
        name = request.request_id
        if not self._sparse:
            return min(group.cached_blocks(name) * group.block_size for group in self._groups.all)
        return min(self._last_cached(group, name) for group in self._sparse)

    def _last_cached(self, group: Group, name: str) -> int:
        blocks = group.blocks_of(name)
        for place in range(len(blocks) - 1, -1, -1):
            if blocks[place].block_hash is not None and not blocks[place].is_null:
                return (place + 1) * group.block_size
        return 0

    def _found(self, name: str, label: str, tokens: int) -> Held | None:
        needed = tokens if self._sparse else tokens // 2
        watched, kv, own = [], [], 0
        for group in (*self._groups.attention, *self._groups.recurrent):
            blocks = group.blocks_of(name)
            place = max(0, -(-needed // group.block_size) - 1)
            if place >= len(blocks) or blocks[place].block_hash is None:
                return None
            watched.append((blocks[place], blocks[place].block_hash, group.number))
            if not group.recurrent:
                kv.append(list(blocks[: tokens // group.block_size]))
                own += self._own_blocks(group, label, tokens)
        return Held(tokens, watched, kv, own, len(self._groups.recurrent))

    def _own_blocks(self, group: Group, label: str, tokens: int) -> int:
        count = tokens // group.block_size - self._shared.get(label, 0) // group.block_size
        return max(0, min(count, group.window_blocks or count))

    def _is_left(self, label: str) -> bool:
        """Whether all that is watched is in the cache, if in other blocks, which are watched then."""
        watched = self._held[label].watched
        for place, (block, key, number) in enumerate(watched):
            if block.block_hash == key:
                continue
            others = self._pool.get_cached_block(self._block_hash(key), [number])
            if not others:
                return False
            watched[place] = (others[0], key, number)
            self._unwatch(block, label)
            self._watch(others[0], label)
        return True

    def _hold(self, label: str, held: Held) -> None:
        self._held[label] = held
        for block, _, _ in held.watched:
            self._watch(block, label)

    def _drop(self, label: str) -> Held:
        held = self._held.pop(label)
        for block, _, _ in held.watched:
            self._unwatch(block, label)
        return held

    def _watch(self, block: Any, label: str) -> None:
        self._watched.setdefault(block.block_id, set()).add(label)

    def _unwatch(self, block: Any, label: str) -> None:
        labels = self._watched[block.block_id]
        labels.discard(label)
        if not labels:
            del self._watched[block.block_id]
