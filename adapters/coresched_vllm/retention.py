"""One recurrent state per trajectory: what a newer one supersedes is evicted before anything else.

A block that no request uses goes to the end of the queue from whose head vLLM evicts. So the state that a
turn was resumed from stays in the pool as long as the one that the next turn needs, and each trajectory
holds two. Here it goes to the head of that queue as soon as nothing will be resumed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Any

from coresched_vllm.blocks import Group, Groups


@dataclass(slots=True, eq=False)
class State:
    """A cached recurrent state: one block of one group."""

    block: Any
    key: Any
    """The hash under which the cache has it, of the tokens before it and the group."""
    tokens: int
    group: int
    label: str
    in_reply: bool
    """Whether it lies behind the prompt of the request that made it."""
    shared: bool
    """Whether something else than the trajectory's next turn may be resumed from it."""


class StateRetention:
    """Of one scheduler with these ``groups``, whose states are aligned.

    ``block_hash(key)`` is the hash of the tokens alone, as requests have it in ``block_hashes``; these are of
    every ``hash_block_size`` tokens. At most one state is remembered for each block of the pool.

    A state is superseded when a request of its trajectory has a newer one whose tokens begin with its own;
    among states behind a prompt, which the next prompt need not contain, only by another of them. It stays in
    its place if another trajectory or an unlabelled request made or hit the same, if it lies where vLLM saw
    prefixes part, or if a request was resumed from it though it was superseded, where a trajectory branches.
    """

    def __init__(self, groups: Groups, block_hash: Callable[[Any], Any], hash_block_size: int) -> None:
        self._groups = groups.recurrent
        self._queue = groups.pool.free_block_queue
        self._block_hash = block_hash
        self._hash_block_size = hash_block_size
        self._states: dict[int, State] = {}
        self._by_key: dict[Any, list[State]] = {}
        self._of_label: dict[str, dict[int, State]] = {}
        self._superseded: dict[int, State] = {}
        self._seen: dict[str, int] = {}
        self.demoted = 0
        """Blocks that were moved to the head of the queue."""

    def observe(
        self,
        running: Iterable[Any],
        admitted: Iterable[Any],
        scheduled_tokens: dict[str, int],
        label_of: Callable[[Any], str | None],
    ) -> None:
        """After a pass: learn what requests hit and made of ``running``, which ends with the ``admitted``.

        ``scheduled_tokens`` is what the pass computes of each.
        """
        first = self._groups[0]
        for request in admitted:
            self._seen[request.request_id] = 0
            resumed_at = request.num_computed_tokens - scheduled_tokens.get(request.request_id, 0)
            self._look(request, label_of(request), resumed_at)
        for request in running:
            name = request.request_id
            if first.cached_blocks(name) != self._seen.get(name, 0) or scheduled_tokens.get(name, 0) > 1:
                self._look(request, label_of(request), 0)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Of requests that have finished."""
        for name in request_ids:
            self._seen.pop(name, None)

    def demote(self, waiting_labels: Callable[[], Set[str]]) -> None:
        """Before a pass: move what is superseded and not in use, unless its trajectory has a request waiting.

        ``waiting_labels()`` are the labels of all that wait; called at most once.
        """
        waiting: Set[str] | None = None
        for number, state in list(self._superseded.items()):
            block = state.block
            if self._states.get(number) is not state or block.block_hash != state.key:
                del self._superseded[number]  # it is gone, and maybe another is in its place
                continue
            if state.shared:
                del self._superseded[number]
                continue
            if block.ref_cnt:
                continue
            if waiting is None:
                waiting = waiting_labels()
            if state.label in waiting:
                continue
            del self._superseded[number]
            self._drop(state)
            self._queue.remove(block)
            self._queue.prepend_n([block])
            self.demoted += 1

    def _look(self, request: Any, label: str | None, resumed_at: int) -> None:
        name = request.request_id
        seen = self._seen.get(name, 0)
        for group in self._groups:
            for block, tokens in group.cached_from(name, seen):
                if tokens <= resumed_at:
                    self._hit(block, tokens, label, group)
                else:
                    self._made(block, tokens, request, label, group)
        self._seen[name] = self._groups[0].cached_blocks(name)

    def _hit(self, block: Any, tokens: int, label: str | None, group: Group) -> None:
        state = self._states.get(block.block_id)
        if state is None or state.key != block.block_hash:
            if label is not None:  # by whom it was made is not known, or it was superseded before
                key = block.block_hash
                self._record(State(block, key, tokens, group.number, label, in_reply=False, shared=True))
        elif state.label != label or block.block_id in self._superseded:
            state.shared = True

    def _made(self, block: Any, tokens: int, request: Any, label: str | None, group: Group) -> None:
        key, number = block.block_hash, block.block_id
        known = self._states.get(number)
        if known is not None and known.key == key:  # seen in an earlier pass, or evicted and made again
            known.shared = known.shared or known.label != label
            self._superseded.pop(number, None)
            return
        shared = False
        for same in self._by_key.get(key, ()):
            if same.label != label:
                same.shared = shared = True
        if label is None:
            return
        shared = shared or tokens == request.shared_prefix_boundary // group.block_size * group.block_size
        in_reply = tokens > request.num_prompt_tokens
        state = State(block, key, tokens, group.number, label, in_reply, shared)
        for other in self._of_label.get(label, {}).values():
            older = other.group == state.group and other.tokens < tokens and other.in_reply >= in_reply
            if older and self._precedes(other, request):
                self._superseded[other.block.block_id] = other
        self._record(state)

    def _precedes(self, state: State, request: Any) -> bool:
        place = state.tokens // self._hash_block_size - 1
        hashes = request.block_hashes
        return 0 <= place < len(hashes) and hashes[place] == self._block_hash(state.key)

    def _record(self, state: State) -> None:
        number = state.block.block_id
        if (replaced := self._states.get(number)) is not None:
            self._drop(replaced)
        self._states[number] = state
        self._by_key.setdefault(state.key, []).append(state)
        self._of_label.setdefault(state.label, {})[number] = state

    def _drop(self, state: State) -> None:
        number = state.block.block_id
        del self._states[number]
        same = self._by_key[state.key]
        same.remove(state)
        if not same:
            del self._by_key[state.key]
        of_label = self._of_label[state.label]
        del of_label[number]
        if not of_label:
            del self._of_label[state.label]
