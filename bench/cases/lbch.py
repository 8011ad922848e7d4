"""LBCH: choosing a worker for a request, its home alone, and a worker that joins and leaves."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Protocol

from bench.cases import TWIN, Case, Scale
from bench.floor import hash_and_search
from bench.peers import installed
from bench.peers.ring import BisectRouter, position_of
from bench.timing import Subject
from coresched.core import LoadBoundedRouter
from coresched.core.reference import ReferenceRouter

IN_FLIGHT_A_WORKER = 32
VIRTUAL_NODES = 128
SIZES = {Scale.FULL: (1, 8, 80, 1024), Scale.QUICK: (1, 8, 80), Scale.COUNTED: (8,)}
"""Workers; 80 of them have 10,240 points on the ring."""


class Router(Protocol):
    def route(self, label: str) -> str: ...
    def release(self, worker: str) -> None: ...
    def hold(self, worker: str) -> None: ...


def lbch_cases(scale: Scale) -> Iterator[Case]:
    sizes = SIZES[scale]
    for count in sizes:
        workers, labels = worker_names(count), trajectory_labels(count)
        ours = LoadBoundedRouter(workers)
        placed = [ours.route(label) for label in labels[: len(labels) // 4]]
        for worker in placed:
            ours.release(worker)
        yield Case(
            "lbch route+release",
            count,
            route_and_release(ours, labels, placed),
            {
                TWIN: route_and_release(ReferenceRouter(workers), labels, placed),
                "python-bisect": route_and_release(BisectRouter(workers), labels, placed),
                **hash_and_search(labels, point_positions(workers)),
            },
        )
    for count in sizes:
        yield _home(count)
    for count in sizes:
        yield _join_and_leave(count)


def worker_names(count: int) -> list[str]:
    return [f"worker-{number}" for number in range(count)]


def trajectory_labels(workers: int) -> list[str]:
    """Four trajectories to each request in flight: most of them are in an environment stage."""
    return [f"task-{number:06d}" for number in range(4 * IN_FLIGHT_A_WORKER * workers)]


def point_positions(workers: list[str]) -> list[int]:
    return [position_of(f"{worker}#{number}", 0) for worker in workers for number in range(VIRTUAL_NODES)]


def route_and_release(router: Router, labels: list[str], placed: list[str]) -> Subject:
    """The oldest request in flight ends and the next one is routed.

    ``placed``: where the first labels are in flight at first, held there and not routed one by one, which
    takes the twin minutes with many workers.
    """
    turns = cycle(labels[len(placed) :] + labels[: len(placed)])
    in_flight = deque(placed)
    for worker in placed:
        router.hold(worker)
    route, release = router.route, router.release

    def subject(operations: int) -> None:
        for label in islice(turns, operations):
            release(in_flight.popleft())
            in_flight.append(route(label))

    return subject


def look_up(home: Callable[[str], str], labels: list[str]) -> Subject:
    turns = cycle(labels)

    def subject(operations: int) -> None:
        for label in islice(turns, operations):
            home(label)

    return subject


def join_and_leave(join: Callable[[str], object], leave: Callable[[str], object]) -> Subject:
    def subject(operations: int) -> None:
        for _ in range(operations):
            join("worker-new")
            leave("worker-new")

    return subject


def _home(count: int) -> Case:
    workers, labels = worker_names(count), trajectory_labels(count)
    peers = {
        TWIN: look_up(ReferenceRouter(workers).home, labels),
        "python-bisect": look_up(BisectRouter(workers).home, labels),
    }
    if uhashring := installed("uhashring"):
        md5 = uhashring.HashRing(workers, vnodes=VIRTUAL_NODES)
        murmur = uhashring.HashRing(workers, vnodes=VIRTUAL_NODES, hash_fn=lambda key: position_of(key, 0))
        peers["uhashring"] = look_up(md5.get_node, labels)
        peers["uhashring, mmh3"] = look_up(murmur.get_node, labels)
    peers.update(hash_and_search(labels, point_positions(workers)))
    return Case("lbch home", count, look_up(LoadBoundedRouter(workers).home, labels), peers)


def _join_and_leave(count: int) -> Case:
    workers = worker_names(count)
    ours, twin, bisect = LoadBoundedRouter(workers), ReferenceRouter(workers), BisectRouter(workers)
    peers = {
        TWIN: join_and_leave(twin.add_worker, twin.remove_worker),
        "python-bisect": join_and_leave(bisect.add_worker, bisect.remove_worker),
    }
    if uhashring := installed("uhashring"):
        ring = uhashring.HashRing(workers, vnodes=VIRTUAL_NODES)
        peers["uhashring"] = join_and_leave(ring.add_node, ring.remove_node)
    return Case("lbch join+leave", count, join_and_leave(ours.add_worker, ours.remove_worker), peers)
