"""Which trajectories SGLang's prefix cache can resume, learned from its own inserts and evictions.

The tree of SGLang's unified cache may be the compiled one, which cannot be hooked. Its owner, the cache, can
be followed: what enters the tree enters by ``checkpoint_into_tree``, and what leaves it leaves there, by
``evict`` or ``evict_for_alloc``, or by ``reset``. After these the tree is asked what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from coresched_engine.ordering import label_of

from coresched.core import ResidencyPolicy


class Held(Protocol):
    """What the tree was given of one trajectory."""

    @property
    def node(self) -> Any:
        """The tree's handle of the deepest node that is left of it."""

    def is_left(self) -> bool:
        """Whether the next turn can be resumed from it."""


class LastState:
    """Of a model with recurrent states: a turn is resumed from the trajectory's last one, or not at all."""

    def __init__(self, core: Any, node: Any, component: Any) -> None:
        self._core, self._node, self._component = core, node, component

    @property
    def node(self) -> Any:
        return self._node

    def is_left(self) -> bool:
        try:
            return self._core.get_component_device_value(self._node, self._component) is not None
        except KeyError:  # the node is gone
            return False


class KvPath:
    """Of a model without such states: KV is evicted from the end, and what is left of it can be reused.

    It counts as held while at least half of its tokens are.
    """

    def __init__(self, core: Any, node: Any) -> None:
        self._core = core
        (path,) = core.collect_path_info([node])
        # A node that is split later keeps its handle, and its end.
        self._path = [(each.node_id, each.path_end) for each in path]
        self._tokens = self._path[-1][1] if self._path else 0

    @property
    def node(self) -> Any:
        return self._path[-1][0]

    def is_left(self) -> bool:
        while self._path and self._is_gone(self.node):
            self._path.pop()
        return bool(self._path) and 2 * self._path[-1][1] >= self._tokens

    def _is_gone(self, node: Any) -> bool:
        try:
            return bool(self._core.is_full_device_evicted(node))
        except KeyError:
            return True


class Residency:
    """Keeps ``policy`` told of what ``tree_cache``, an UnifiedRadixCache, holds.

    ``turn_ended(label)`` is called when a request has ended and its trajectory's turn was inserted.
    """

    def __init__(self, tree_cache: Any, policy: ResidencyPolicy, turn_ended: Callable[[str], object]) -> None:
        from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

        self._cache = tree_cache
        self._core = tree_cache.tree_core
        self._policy = policy
        self._turn_ended = turn_ended
        self._states = tree_cache.supports_mamba()
        self._state_component = ComponentType.MAMBA
        self._held: dict[str, Held] = {}
        self._look_again = False
        self.changes = 0
        """Grows whenever something may have entered or left the cache."""
        self.lost = 0
        """How often the cache lost what it held of a trajectory."""
        for name, after in (
            ("checkpoint_into_tree", self._inserted),
            ("evict", self._evicted),
            ("evict_for_alloc", self._evicted),
            ("reset", self._emptied),
        ):
            setattr(tree_cache, name, _followed(getattr(tree_cache, name), after))

    def refresh(self) -> None:
        """After evictions, ask the tree what is left of each trajectory."""
        if not self._look_again:
            return
        self._look_again = False
        for label, held in list(self._held.items()):
            if not held.is_left():
                del self._held[label]
                self._policy.evicted(label)
                self.lost += 1

    def nodes(self, labels: Iterable[str]) -> set[Any]:
        """The distinct nodes that are held of these trajectories; they share one where they are the same."""
        return {self._held[label].node for label in labels if label in self._held}

    def labels(self) -> Iterable[str]:
        return self._held.keys()

    @contextmanager
    def kept(self, nodes: Iterable[Any]) -> Iterator[None]:
        """Nothing that these nodes need is evicted within, as if requests ran on them."""
        locks = []
        try:
            for node in nodes:
                locks.append(self._cache.lock(node))
            yield
        finally:
            for lock in reversed(locks):
                self._cache.unlock(lock)

    def _inserted(self, request: Any, *_args: Any, **_kwargs: Any) -> None:
        self.changes += 1
        self._look_again = True  # a new state may have pushed out one that another trajectory ended with
        label = label_of(request)
        if label is None:
            return
        held: Held
        if self._states:
            held = LastState(self._core, request.last_node, self._state_component)
        else:
            held = KvPath(self._core, request.last_node)
        if held.is_left():
            self._held[label] = held
            self._policy.resident(label)
        if request.finished():
            self._turn_ended(label)

    def _evicted(self, *_args: Any, **_kwargs: Any) -> None:
        self.changes += 1
        self._look_again = True

    def _emptied(self, *_args: Any, **_kwargs: Any) -> None:
        self.changes += 1
        self._held.clear()
        self._policy.clear()


def _followed(method: Callable[..., Any], after: Callable[..., None]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        after(*args, **kwargs)
        return result

    return call
