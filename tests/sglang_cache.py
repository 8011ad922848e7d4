"""A prefix cache with the surface of SGLang's unified one that routing-residency uses."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@dataclass
class EvictParams:
    num_tokens: int = 0
    swa_num_tokens: int = 0
    mamba_num: int = 0


class MambaSlotAllocator:
    def __init__(self, size: int) -> None:
        self.size = self.free = size

    def available_size(self) -> int:
        return self.free


@dataclass
class Node:
    parent: "Node | None"
    tokens: int
    state: bool
    locks: int = 0
    children: int = 0
    used: int = 0


@dataclass(eq=False)
class Request:
    """A request of SGLang, whose prompt has ``tokens`` tokens."""

    rid: str
    routing_key: str | None = None
    tokens: int = 100
    output: int = 0
    last_node: Any = None
    is_finished: bool = False
    prefix_len: int = 0
    priority: Any = None
    output_ids: list[int] = field(default_factory=list)

    @property
    def origin_input_ids(self) -> range:
        return range(self.tokens)

    @property
    def sampling_params(self) -> Any:
        return SimpleNamespace(max_new_tokens=self.output)

    def finished(self) -> bool:
        return self.is_finished


class Cache:
    """States and KV of a radix tree, evicted least recently used first, as far as no lock holds them."""

    def __init__(self, slots: int | None = 64, kv_tokens: int = 10**9) -> None:
        self.slots = slots
        self.nodes: dict[int, Node] = {}
        self.ids = count(1)
        self.clock = count(1)
        self.allocator = MambaSlotAllocator(slots or 0)
        self.req_to_token_pool = SimpleNamespace(
            mamba_allocator=self.allocator, mamba_initial_tracking_slots=2
        )
        self.kv_tokens = self.kv_free = kv_tokens
        self.token_to_kv_pool_allocator = SimpleNamespace(available_size=lambda: self.kv_free)
        self.tree_core = self

    # the tree

    def get_component_device_value(self, node_id: int, component: Any) -> object | None:
        assert component == "mamba"
        return object() if self.nodes[node_id].state else None

    def is_full_device_evicted(self, node_id: int) -> bool:
        return not self.nodes[node_id]

    def collect_path_info(self, ends: list[int]) -> tuple[tuple[Any, ...], ...]:
        paths = []
        for end in ends:
            path, node = [], self.nodes.get(end)
            while node is not None:
                path.append(node)
                node = node.parent
            total, infos = 0, []
            for each in reversed(path):
                total += each.tokens
                infos.append(SimpleNamespace(node_id=self._id(each), path_end=total))
            paths.append(tuple(infos))
        return tuple(paths)

    def _id(self, node: Node) -> int:
        return next(number for number, each in self.nodes.items() if each is node)

    # its owner

    def supports_mamba(self) -> bool:
        return self.slots is not None

    def mamba_evictable_size(self) -> int:
        return sum(node.state and not node.locks for node in self.nodes.values())

    def full_evictable_size(self) -> int:
        return sum(node.tokens for node in self.nodes.values() if not self._kv_locked(node))

    def _kv_locked(self, node: Node) -> bool:
        return bool(node.locks) or any(
            each.locks and self._is_above(node, each) for each in self.nodes.values()
        )

    @staticmethod
    def _is_above(node: Node, below: Node) -> bool:
        above = below.parent
        while above is not None:
            if above is node:
                return True
            above = above.parent
        return False

    def checkpoint_into_tree(self, req: Request, *, up_to: int) -> None:
        """``up_to`` tokens of the request are inserted below its last node, whose state then leaves."""
        parent = self.nodes.get(req.last_node)
        known = 0
        above = parent
        while above is not None:
            known += above.tokens
            above = above.parent
        node = Node(parent, up_to - known, self.slots is not None, used=next(self.clock))
        self.kv_free -= node.tokens
        if parent is not None:
            parent.children += 1
            if parent.state and not parent.locks:
                parent.state = False
                self.allocator.free += 1
        if node.state:
            self.allocator.free -= 1
        req.last_node = next(self.ids)
        self.nodes[req.last_node] = node

    def evict(self, params: EvictParams) -> Any:
        tokens = states = 0
        for number, node in sorted(self.nodes.items(), key=lambda item: item[1].used):
            if states < params.mamba_num and node.state and not node.locks:
                node.state = False
                self.allocator.free += 1
                states += 1
            if tokens < params.num_tokens and not self._kv_locked(node) and not node.children:
                tokens += self._remove(number)
        return SimpleNamespace(num_tokens_evicted=tokens, mamba_num_evicted=states)

    def _remove(self, number: int) -> int:
        node = self.nodes.pop(number)
        if node.state:
            self.allocator.free += 1
        if node.parent is not None:
            node.parent.children -= 1
        self.kv_free += node.tokens
        return node.tokens

    def evict_for_alloc(self, params: EvictParams) -> Any:
        return self.evict(params)

    def reset(self) -> None:
        self.nodes.clear()
        self.allocator.free = self.allocator.size
        self.kv_free = self.kv_tokens

    def lock(self, node_id: int) -> int:
        self.nodes[node_id].locks += 1
        return node_id

    def unlock(self, lock: int) -> None:
        self.nodes[lock].locks -= 1


@contextmanager
def cache_modules() -> Iterator[None]:
    """SGLang's modules from which the adapter takes these names."""
    modules = {
        "sglang.srt.mem_cache.unified_cache.component_type": {
            "ComponentType": SimpleNamespace(MAMBA="mamba")
        },
        "sglang.srt.mem_cache.base_prefix_cache": {"EvictParams": EvictParams},
        "sglang.srt.mem_cache.allocator.mamba": {"MambaSlotAllocator": MambaSlotAllocator},
    }
    with pytest.MonkeyPatch.context() as patch:
        for path, members in modules.items():
            parts = path.split(".")
            for length in range(1, len(parts) + 1):
                name = ".".join(parts[:length])
                if name not in sys.modules or length == len(parts):
                    module = ModuleType(name)
                    module.__path__ = []
                    patch.setitem(sys.modules, name, module)
            vars(sys.modules[path]).update(members)
        yield
