"""Draining: off the ring and out of the totals, yet listed, until registered again or removed."""

import pytest
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st

from coresched.core.ring import LoadBoundedRouter
from coresched.service.calls import RouterCalls
from coresched.service.entry import Standing
from coresched.service.refusal import RefusedError
from coresched.service.table import MOST_WORKERS, UNARY, RoutingTable
from coresched.v1 import router_pb2 as pb

LABELS = [f"traj-{n}" for n in range(60)]


def route(table: RoutingTable, label: str, exclude: tuple[str, ...] = ()) -> str:
    return table.route(label, exclude, owner=UNARY, request_id="r").worker


def test_only_labels_of_the_drained_worker_move_and_all_come_home_again() -> None:
    workers = {"w0": 1.0, "w1": 2.0, "w2": 1.0}
    table = RoutingTable(workers, load_bound=100.0)
    home = {label: route(table, label) for label in LABELS}
    assert "w1" in home.values()
    in_flight = list(home.values()).count("w1")
    assert table.drain("w1") == in_flight
    for label in LABELS:
        worker = route(table, label)
        assert worker != "w1"
        assert home[label] in ("w1", worker)
    table.register("w1", None)
    assert table.workers()["w1"].weight == 2.0
    assert table.workers()["w1"].in_flight == in_flight
    assert {label: route(table, label) for label in LABELS} == home


def test_a_draining_worker_stays_listed_when_idle_and_goes_when_removed() -> None:
    table = RoutingTable({"w0": 1.0, "w1": 1.0})
    route(table, "k", ("w1",))
    assert table.drain("w0") == 1
    table.release("k", "w0", owner=UNARY)
    assert table.workers()["w0"].standing is Standing.DRAINING
    assert table.drain("w0") == 0
    assert route(table, "k", ("w0",)) == "w1"  # it may still be named, as by a client that knows no better
    assert table.remove("w0") == 0
    assert list(table.workers()) == ["w1"]


def test_a_draining_worker_that_is_removed_goes_with_its_last_request() -> None:
    table = RoutingTable({"w0": 1.0, "w1": 1.0})
    route(table, "k", ("w1",))
    table.drain("w0")
    assert table.remove("w0") == 1
    for step in (table.drain, table.remove):
        with pytest.raises(RefusedError, match="worker must be routable or draining, got 'w0'") as refused:
            step("w0")
        assert refused.value.code is StatusCode.NOT_FOUND
    table.release("k", "w0", owner=UNARY)
    assert list(table.workers()) == ["w1"]


def test_a_weight_of_its_own_replaces_that_of_a_draining_worker_and_removal_forgets_it() -> None:
    table = RoutingTable({"w0": 3.0})
    table.drain("w0")
    table.register("w0", 2.0)
    assert table.workers()["w0"].weight == 2.0
    route(table, "k")
    table.remove("w0")
    table.register("w0", None)
    assert table.workers()["w0"].weight == 1.0


def test_with_all_workers_draining_nothing_is_routed() -> None:
    table = RoutingTable({"w0": 1.0})
    table.drain("w0")
    for exclude in ((), ("w0",)):
        with pytest.raises(RefusedError, match="none is routable") as refused:
            route(table, "k", exclude)
        assert refused.value.code is StatusCode.FAILED_PRECONDITION
    with pytest.raises(RefusedError, match="worker must be routable or draining"):
        table.drain("w9")


STEPS = st.lists(
    st.tuples(st.sampled_from(["route", "release", "drain", "register", "remove"]), st.integers(0, 59)),
    max_size=60,
)


@given(steps=STEPS)
def test_routing_is_that_of_a_router_of_the_routable_workers_alone(steps: list[tuple[str, int]]) -> None:
    """W and L_tot are over the routable workers: the twin is told of a drain as of a removal."""
    names = ("w0", "w1", "w2")
    table = RoutingTable(dict.fromkeys(names, 1.0), virtual_nodes=8)
    twin = LoadBoundedRouter(names, virtual_nodes=8)
    held: list[tuple[str, str]] = []
    for step, n in steps:
        name = names[n % 3]
        entry = table.workers().get(name)
        if step == "route" and twin.workers():
            label = LABELS[n]
            worker = route(table, label)
            assert worker == twin.route(label)
            held.append((label, worker))
        elif step == "release" and held:
            label, worker = held.pop(n % len(held))
            table.release(label, worker, owner=UNARY)
            twin.release(worker)
        elif step == "drain" and entry is not None and entry.routable:
            table.drain(name)
            twin.remove_worker(name)
        elif step == "register" and (entry is None or not entry.routable):
            table.register(name, None)
            twin.add_worker(name)
        elif step == "remove" and entry is not None and entry.standing is not Standing.REMOVED:
            if entry.routable:
                twin.remove_worker(name)
            table.remove(name)
        assert {n: e.in_flight for n, e in table.workers().items() if e.routable} == twin.loads()
        for name, entry in table.workers().items():
            assert entry.in_flight == sum(worker == name for _, worker in held)


def test_the_call_is_idempotent_and_lists_the_worker_as_draining() -> None:
    calls = RouterCalls(RoutingTable({"w0": 1.0}))
    calls.route(pb.RouteRequest(request_id="a", label="k"))
    drain = pb.DrainWorkerRequest(request_id="b", worker="w0")
    assert calls.drain_worker(drain) == pb.DrainWorkerResponse(in_flight=1)
    calls.register_worker(pb.RegisterWorkerRequest(request_id="c", worker="w0"))
    assert calls.drain_worker(drain) == pb.DrainWorkerResponse(in_flight=1)
    (worker,) = calls.list_workers(pb.ListWorkersRequest()).workers
    assert worker.state == pb.WORKER_STATE_ROUTABLE
    calls.drain_worker(pb.DrainWorkerRequest(request_id="d", worker="w0"))
    (worker,) = calls.list_workers(pb.ListWorkersRequest()).workers
    assert (worker.state, worker.in_flight) == (pb.WORKER_STATE_DRAINING, 1)


def test_workers_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_WORKERS == 10_000
    monkeypatch.setattr("coresched.service.table.MOST_WORKERS", 2)
    with pytest.raises(ValueError, match="workers must be at most 2, got 3"):
        RoutingTable(dict.fromkeys("abc", 1.0))
    table = RoutingTable(dict.fromkeys("ab", 1.0))
    with pytest.raises(RefusedError, match="worker 'c' would be one more than 2 workers") as refused:
        table.register("c", 1.0)
    assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED
    table.drain("a")
    table.register("a", None)
    table.remove("a")
    table.register("c", 1.0)
    assert list(table.workers()) == ["b", "c"]
