"""LBCH on equal workers in Python: bisect over integer positions, and no walk where home is eligible."""

from bisect import bisect_left
from collections.abc import Iterable
from fractions import Fraction

from mmh3 import hash64


def position_of(text: str, seed: int) -> int:
    """The hash of the core's ring, so that both route alike."""
    return hash64(text, seed=seed, x64arch=True, signed=False)[0]


class BisectRouter:
    """Worker w is eligible iff ``L(w) W q <= p (L_tot + 1)``, alpha being p / q."""

    def __init__(self, workers: Iterable[str], load_bound: float = 1.25, virtual_nodes: int = 128) -> None:
        self._p, self._q = Fraction(repr(load_bound)).as_integer_ratio()
        self._virtual_nodes = virtual_nodes
        self._loads: dict[str, int] = {}
        self._points: list[tuple[int, str]] = []
        self._positions: list[int] = []
        self._owners: list[str] = []
        self._total = 0
        for worker in workers:
            self._put(worker)
        self._index()

    def add_worker(self, name: str) -> None:
        self._put(name)
        self._index()

    def remove_worker(self, name: str) -> None:
        self._total -= self._loads.pop(name)
        self._points = [point for point in self._points if point[1] != name]
        self._index()

    def home(self, label: str) -> str:
        place = bisect_left(self._positions, position_of(label, 1))
        return self._owners[place if place < len(self._owners) else 0]

    def route(self, label: str) -> str:
        loads, owners = self._loads, self._owners
        start = bisect_left(self._positions, position_of(label, 1))
        if start == len(owners):
            start = 0
        home = chosen = owners[start]
        factor = len(loads) * self._q
        bound = self._p * (self._total + 1)
        if loads[home] * factor > bound:
            chosen = self._successor(start, factor, bound)
        loads[chosen] += 1
        self._total += 1
        return chosen

    def release(self, worker: str) -> None:
        self._loads[worker] -= 1
        self._total -= 1

    def hold(self, worker: str) -> None:
        self._loads[worker] += 1
        self._total += 1

    def _successor(self, start: int, factor: int, bound: int) -> str:
        """The first eligible worker clockwise from home, or home."""
        loads, owners = self._loads, self._owners
        size = len(owners)
        seen = set()
        for place in range(start, start + size):
            worker = owners[place if place < size else place - size]
            if worker not in seen:
                if loads[worker] * factor <= bound:
                    return worker
                seen.add(worker)
                if len(seen) == len(loads):
                    break
        return owners[start]

    def _put(self, name: str) -> None:
        self._loads[name] = 0
        self._points.extend((position_of(f"{name}#{i}", 0), name) for i in range(self._virtual_nodes))

    def _index(self) -> None:
        self._points.sort()
        self._positions = [position for position, _ in self._points]
        self._owners = [name for _, name in self._points]
