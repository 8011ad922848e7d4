"""Tenants of one router: what each may do, and that none can read, release or block what is another's."""

from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest
from grpc import StatusCode

from coresched.service.answers import AnswerMemory
from coresched.service.calls import RouterCalls
from coresched.service.identity import Caller, act_as
from coresched.service.refusal import RefusedError
from coresched.service.table import Owner, RoutingTable
from coresched.v1 import router_pb2 as pb

ADMIN, A, B = Caller("ops", True), Caller("a", False), Caller("b", False)


def as_caller(caller: Caller, step: Callable[..., Any], *args: Any) -> Any:
    def within() -> Any:
        act_as(caller)
        return step(*args)

    return copy_context().run(within)


@pytest.fixture
def calls() -> RouterCalls:
    return RouterCalls(RoutingTable({"w0": 1.0, "w1": 1.0}))


def loads(calls: RouterCalls) -> dict[str, int]:
    return {w.worker: w.in_flight for w in calls.list_workers(pb.ListWorkersRequest()).workers}


def route(request_id: str, label: str = "k") -> pb.RouteRequest:
    return pb.RouteRequest(request_id=request_id, label=label)


def release(request_id: str, worker: str, label: str = "k") -> pb.ReleaseRequest:
    return pb.ReleaseRequest(request_id=request_id, label=label, worker=worker)


MANAGING: list[tuple[str, Any]] = [
    ("register_worker", pb.RegisterWorkerRequest(request_id="m", worker="w2")),
    ("drain_worker", pb.DrainWorkerRequest(request_id="m", worker="w0")),
    ("remove_worker", pb.RemoveWorkerRequest(request_id="m", worker="w0")),
]


@pytest.mark.parametrize(("name", "request_"), MANAGING, ids=[name for name, _ in MANAGING])
def test_only_a_caller_that_manages_workers_may_change_them(
    calls: RouterCalls, name: str, request_: Any
) -> None:
    before = calls.list_workers(pb.ListWorkersRequest())
    with pytest.raises(RefusedError, match="manages_workers true") as refused:
        as_caller(A, getattr(calls, name), request_)
    assert refused.value.code is StatusCode.PERMISSION_DENIED
    assert calls.list_workers(pb.ListWorkersRequest()) == before
    as_caller(ADMIN, getattr(calls, name), request_)
    assert calls.list_workers(pb.ListWorkersRequest()) != before
    with pytest.raises(RefusedError) as refused:  # nor does an answer that is remembered come out
        as_caller(Caller("ops", False), getattr(calls, name), request_)
    assert refused.value.code is StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("caller", [ADMIN, A])
def test_every_tenant_may_route_release_and_list(calls: RouterCalls, caller: Caller) -> None:
    worker = as_caller(caller, calls.route, route("r")).worker
    assert sum(as_caller(caller, loads, calls).values()) == 1
    as_caller(caller, calls.release, release("e", worker))
    assert sum(loads(calls).values()) == 0


@pytest.mark.parametrize("other", [B, ADMIN])
def test_a_request_in_flight_is_released_by_its_own_tenant_only(calls: RouterCalls, other: Caller) -> None:
    worker = as_caller(A, calls.route, route("r")).worker
    for owner in (None, Owner()):
        with pytest.raises(RefusedError, match="has no request in flight on worker") as refused:
            as_caller(other, calls.release, release("e", worker), owner)
        assert refused.value.code is StatusCode.NOT_FOUND
    assert loads(calls)[worker] == 1
    as_caller(A, calls.release, release("e", worker))
    assert loads(calls)[worker] == 0


def test_one_id_of_two_tenants_is_two_calls_with_an_answer_each(calls: RouterCalls) -> None:
    first = as_caller(A, calls.route, route("r", "k")).worker
    second = as_caller(B, calls.route, route("r", "another label")).worker
    assert sum(loads(calls).values()) == 2
    assert as_caller(A, calls.route, route("r", "k")).worker == first
    assert as_caller(B, calls.route, route("r", "another label")).worker == second
    third = as_caller(B, calls.route, route("s", "k")).worker  # the very call of A, with an id of B
    assert sum(loads(calls).values()) == 3
    as_caller(B, calls.release, release("e", third))
    as_caller(A, calls.release, release("e", first))
    assert sum(loads(calls).values()) == 1


def test_a_retry_cannot_take_over_another_tenants_request(calls: RouterCalls) -> None:
    stream = Owner()
    as_caller(A, calls.route, route("r"), stream)
    as_caller(B, calls.route, route("r"))  # what A sent, byte for byte
    assert sum(loads(calls).values()) == 2
    as_caller(A, calls.end_stream, stream)
    assert sum(loads(calls).values()) == 1


def test_the_end_of_a_stream_forgets_answers_of_its_tenant_only(calls: RouterCalls) -> None:
    stream = Owner()
    as_caller(B, calls.route, route("r"))
    as_caller(A, calls.route, route("r"), stream)
    as_caller(A, calls.end_stream, stream)
    before = loads(calls)
    as_caller(B, calls.route, route("r"))
    assert loads(calls) == before


def test_a_busy_tenant_pushes_out_its_own_answers_and_not_those_of_others() -> None:
    memory: AnswerMemory[int] = AnswerMemory(10)
    for n in range(3):
        as_caller(B, memory.keep, f"b{n}", route(f"b{n}"), n)
    for n in range(100):
        as_caller(A, memory.keep, f"a{n}", route(f"a{n}"), n)
    assert [as_caller(B, memory.find, f"b{n}", route(f"b{n}")) for n in range(3)] == [0, 1, 2]
    kept = [n for n in range(100) if as_caller(A, memory.find, f"a{n}", route(f"a{n}")) is not None]
    assert kept == list(range(93, 100))
    for n in range(3, 20):  # and takes its half back when it needs it
        as_caller(B, memory.keep, f"b{n}", route(f"b{n}"), n)
    kept = [n for n in range(100) if as_caller(A, memory.find, f"a{n}", route(f"a{n}")) is not None]
    assert kept == list(range(95, 100))
