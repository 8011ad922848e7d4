"""A peer is worth timing only if it does the same job."""

import asyncio
import queue
import sys
from random import Random

import pytest

from bench import floor
from bench.cases import Scale, lbch
from bench.cases.caas import JobQueue, discarding_peers, popping_peers
from bench.peers import absent, installed
from bench.peers.chain import HeapqQueue, PriorityQueue
from bench.peers.prefix import Request, SortingPolicy
from bench.peers.ring import BisectRouter
from coresched.core import ChainAdvancingQueue, LoadBoundedRouter, RoutingPrefixPolicy, Waiting


@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_bisect_router_routes_as_the_core(count: int) -> None:
    workers = [f"worker-{number}" for number in range(count)]
    ours, peer = LoadBoundedRouter(workers), BisectRouter(workers)
    rng = Random(count)
    in_flight: list[str] = []
    away_from_home = 0
    for step in range(3000):
        if step == 1000:
            ours.add_worker("joined")
            peer.add_worker("joined")
        if step == 2000:
            in_flight = [worker for worker in in_flight if worker != "joined"]
            ours.remove_worker("joined")
            peer.remove_worker("joined")
        if in_flight and rng.random() < 0.45:
            worker = in_flight.pop(rng.randrange(len(in_flight)))
            ours.release(worker)
            peer.release(worker)
        else:
            label = f"task-{rng.randrange(200)}"
            in_flight.append(ours.route(label))
            assert peer.route(label) == in_flight[-1]
            assert peer.home(label) == ours.home(label)
            away_from_home += in_flight[-1] != ours.home(label)
    assert away_from_home > 0


def test_the_sorting_policy_orders_as_the_core() -> None:
    rng = Random(3)
    ours, peer = RoutingPrefixPolicy(10), SortingPolicy(10)
    hits = {f"r{number}": rng.randrange(5) for number in range(60)}
    rows = [(id, f"task-{rng.randrange(30)}", float(rng.randrange(9))) for id in hits]
    waiting, requests = [Waiting(*row) for row in rows], [Request(*row) for row in rows]
    for _ in range(100):
        label = f"task-{rng.randrange(30)}"
        ours.admitted(label)
        peer.admitted(label)
        waiting = ours.order(waiting, lambda one: hits[one.id])
        requests = peer.order(requests, lambda one: hits[one.id])
        assert [one.id for one in requests] == [one.id for one in waiting]
        assert [one.hit for one in requests] == [one.hit for one in waiting]


@pytest.mark.parametrize("name", [*discarding_peers(), *popping_peers()])
def test_the_queues_pop_as_the_core(name: str) -> None:
    peer = {**discarding_peers(), **popping_peers()}[name]()
    ours = ChainAdvancingQueue()
    rng = Random(4)
    for job in range(3000):
        turns, mean_s = rng.randint(1, 60), rng.uniform(0.5, 12.0)
        ours.push(job, requested_at=0.3 * job, turns=turns, mean_inference_s=mean_s)
        peer.push(job, requested_at=0.3 * job, turns=turns, mean_inference_s=mean_s)
        if job > 100:
            assert peer.pop() == ours.pop()


@pytest.mark.parametrize("name", list(discarding_peers()))
def test_the_discarding_queues_discard_as_the_core(name: str) -> None:
    peer, ours = discarding_peers()[name](), ChainAdvancingQueue()
    rng = Random(5)
    for job in range(2000):
        turns, mean_s = rng.randint(1, 60), rng.uniform(0.5, 12.0)
        ours.push(job, requested_at=0.3 * job, turns=turns, mean_inference_s=mean_s)
        peer.push(job, requested_at=0.3 * job, turns=turns, mean_inference_s=mean_s)
        withdrawn = rng.randint(0, job)
        assert peer.discard(withdrawn) == ours.discard(withdrawn)
        if job % 4 == 3:
            assert peer.pop() == ours.pop()
    assert len(ours) > 100
    while len(ours):
        assert peer.pop() == ours.pop()


def test_bands_and_buckets_shape_the_key_of_every_queue() -> None:
    peers: list[JobQueue] = [
        HeapqQueue(10.0, 2.0),
        PriorityQueue(queue.PriorityQueue(), 10.0, 2.0),
        PriorityQueue(asyncio.PriorityQueue(), 10.0, 2.0),
    ]
    for peer in peers:
        peer.push("late", requested_at=10.0, turns=9, mean_inference_s=0.0)
        peer.push("slow", requested_at=9.9, turns=3, mean_inference_s=2.0)
        peer.push("fast", requested_at=0.0, turns=3, mean_inference_s=1.9)
        peer.push("deep", requested_at=5.0, turns=4, mean_inference_s=8.0)
        assert [peer.pop() for _ in range(4)] == ["deep", "fast", "slow", "late"]


def test_a_peer_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uhashring", None)
    monkeypatch.setitem(sys.modules, "sortedcontainers", None)
    assert installed("uhashring") is None
    assert absent() == ["uhashring", "sortedcontainers"]
    monkeypatch.setattr(floor, "which", lambda _name: None)
    monkeypatch.setattr(floor, "library", floor.library.__wrapped__)
    assert floor.compiler() is None
    assert {peer for case in lbch.lbch_cases(Scale.COUNTED) for peer in case.peers} == {
        "python-twin",
        "python-bisect",
    }
    assert list(discarding_peers()) == ["python-twin", "heapq, lazy"]
