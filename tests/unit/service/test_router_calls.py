"""Calls sent again: nothing changes and the answer is the same, on streams too, within the memory's bound."""

from collections import Counter

import pytest
from grpc import StatusCode
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from coresched.core.ring import LoadBoundedRouter
from coresched.service.calls import RouterCalls
from coresched.service.refusal import RefusedError
from coresched.service.table import UNARY, Owner, RoutingTable
from coresched.v1 import router_pb2 as pb


@pytest.fixture
def calls() -> RouterCalls:
    return RouterCalls(RoutingTable({"w0": 1.0, "w1": 1.0}), remembered=4)


def loads(calls: RouterCalls) -> dict[str, int]:
    return {w.worker: w.in_flight for w in calls.list_workers(pb.ListWorkersRequest()).workers}


def route(request_id: str, label: str = "k", exclude: tuple[str, ...] = ()) -> pb.RouteRequest:
    return pb.RouteRequest(request_id=request_id, label=label, exclude=exclude)


def test_every_mutating_call_sent_again_changes_nothing(calls: RouterCalls) -> None:
    worker = calls.route(route("a")).worker
    before = loads(calls)
    assert calls.route(route("a")).worker == worker
    assert loads(calls) == before

    release = pb.ReleaseRequest(request_id="b", label="k", worker=worker)
    for _ in range(3):
        assert calls.release(release) == pb.ReleaseResponse()
    assert sum(loads(calls).values()) == 0

    register = pb.RegisterWorkerRequest(request_id="c", worker="w2", weight=2)
    for _ in range(3):
        assert calls.register_worker(register) == pb.RegisterWorkerResponse()

    calls.route(route("x", exclude=("w0", "w1")))
    remove = pb.RemoveWorkerRequest(request_id="d", worker="w2")
    for _ in range(3):
        assert calls.remove_worker(remove) == pb.RemoveWorkerResponse(in_flight=1)


def test_a_weight_left_out_is_one_and_a_zero_is_refused(calls: RouterCalls) -> None:
    calls.register_worker(pb.RegisterWorkerRequest(request_id="a", worker="w2"))
    assert calls.list_workers(pb.ListWorkersRequest()).workers[2].weight == 1.0
    with pytest.raises(RefusedError, match="weight must be above 0"):
        calls.register_worker(pb.RegisterWorkerRequest(request_id="b", worker="w3", weight=0))


@pytest.mark.parametrize(
    "other",
    [route("a", "q"), route("a", exclude=("w0",)), pb.ReleaseRequest(request_id="a", label="k", worker="w0")],
)
def test_an_id_used_for_another_call_is_refused(
    calls: RouterCalls, other: pb.RouteRequest | pb.ReleaseRequest
) -> None:
    calls.route(route("a"))
    before = loads(calls)
    with pytest.raises(RefusedError, match="request_id must be new for each call, got 'a'") as refused:
        calls.release(other) if isinstance(other, pb.ReleaseRequest) else calls.route(other)
    assert (refused.value.code, refused.value.field) == (StatusCode.INVALID_ARGUMENT, "request_id")
    assert loads(calls) == before


def test_an_id_is_of_one_kind_of_call_also_where_the_content_is_the_same(calls: RouterCalls) -> None:
    register = pb.RegisterWorkerRequest(request_id="a", worker="w2")
    remove = pb.RemoveWorkerRequest(request_id="a", worker="w2")
    assert register.SerializeToString() == remove.SerializeToString()
    calls.register_worker(register)
    with pytest.raises(RefusedError, match="request_id must be new"):
        calls.remove_worker(remove)
    assert "w2" in loads(calls)


@pytest.mark.parametrize("request_id", ["", "é" * 65, "x" * 513])
def test_an_id_must_have_1_to_128_bytes(calls: RouterCalls, request_id: str) -> None:
    with pytest.raises(RefusedError, match=r"^request_id must") as refused:
        calls.route(route(request_id))
    assert refused.value.code is StatusCode.INVALID_ARGUMENT
    calls.route(route("é" * 64))
    assert sum(loads(calls).values()) == 1


def test_a_refused_call_is_not_remembered(calls: RouterCalls) -> None:
    retried = route("a", exclude=("w2",))
    with pytest.raises(RefusedError):
        calls.route(retried)
    calls.register_worker(pb.RegisterWorkerRequest(request_id="b", worker="w2"))
    assert calls.route(retried).worker in ("w0", "w1")


def test_the_oldest_answer_is_forgotten_first_and_its_call_is_then_new(calls: RouterCalls) -> None:
    for request_id in "abcd":
        calls.route(route(request_id))
    calls.route(route("a"))
    assert sum(loads(calls).values()) == 4
    calls.route(route("e"))
    calls.route(route("b"))
    assert sum(loads(calls).values()) == 5
    calls.route(route("a"))
    assert sum(loads(calls).values()) == 6


def test_the_end_of_a_stream_gives_its_requests_back_and_a_retry_elsewhere_routes_anew(
    calls: RouterCalls,
) -> None:
    broken, fresh = Owner(), Owner()
    worker = calls.route(route("a"), broken).worker
    calls.end_stream(broken)
    assert sum(loads(calls).values()) == 0
    assert calls.route(route("a"), fresh).worker == worker
    assert sum(loads(calls).values()) == 1
    calls.end_stream(broken)
    assert sum(loads(calls).values()) == 1


def test_a_retry_elsewhere_before_the_end_of_the_stream_is_noticed_takes_the_request_over(
    calls: RouterCalls,
) -> None:
    broken, fresh = Owner(), Owner()
    worker = calls.route(route("a"), broken).worker
    assert calls.route(route("a"), fresh).worker == worker
    calls.end_stream(broken)
    assert loads(calls)[worker] == 1
    calls.release(pb.ReleaseRequest(request_id="b", label="k", worker=worker), fresh)
    assert loads(calls)[worker] == 0


def test_a_release_on_a_broken_stream_keeps_its_answer(calls: RouterCalls) -> None:
    broken = Owner()
    worker = calls.route(route("a"), broken).worker
    release = pb.ReleaseRequest(request_id="b", label="k", worker=worker)
    calls.release(release, broken)
    calls.end_stream(broken)
    assert calls.release(release, Owner()) == pb.ReleaseResponse()


def test_the_end_of_a_stream_forgets_no_answer_but_its_own(calls: RouterCalls) -> None:
    stream = Owner()
    calls.route(route("a"), stream)
    for request_id in "bcde":
        calls.route(route(request_id, "q"))
    calls.route(route("a", "other"))  # the first "a" is forgotten, so its id is free again
    calls.end_stream(stream)
    before = loads(calls)
    calls.route(route("a", "other"))
    assert loads(calls) == before


class Retries(RuleBasedStateMachine):
    """Clients that route, release, break off and repeat themselves, beside a router that hears each once.

    As in a batch, a label has one request in flight at a time.
    """

    sent = Bundle("sent")

    def __init__(self) -> None:
        super().__init__()
        self.calls = RouterCalls(RoutingTable({"w0": 1.0, "w1": 2.0}, load_bound=1.1, virtual_nodes=8))
        self.router = LoadBoundedRouter({"w0": 1.0, "w1": 2.0}, load_bound=1.1, virtual_nodes=8)
        self.owners = [UNARY, Owner(), Owner()]
        self.held: dict[str, tuple[str, str, Owner]] = {}
        self.number = 0

    @rule(target=sent, label=st.sampled_from("klmnop"), who=st.integers(0, 2))
    def route(self, label: str, who: int) -> str:
        self.number += 1
        if any(label == held for held, _, _ in self.held.values()):
            label = f"{label}{self.number}"
        request_id = f"{label}/{self.number}"
        worker = self.calls.route(route(request_id, label), self.owners[who]).worker
        assert worker == self.router.route(label)
        self.held[request_id] = (label, worker, self.owners[who])
        return request_id

    @rule(request_id=sent, who=st.integers(0, 2))
    def route_again(self, request_id: str, who: int) -> None:
        if request_id in self.held:
            label, worker, _ = self.held[request_id]
            assert self.calls.route(route(request_id, label), self.owners[who]).worker == worker
            self.held[request_id] = (label, worker, self.owners[who])

    @rule(request_id=sent, times=st.integers(1, 2))
    def release(self, request_id: str, times: int) -> None:
        if request_id in self.held:
            label, worker, owner = self.held.pop(request_id)
            for _ in range(times):
                call = pb.ReleaseRequest(request_id=f"end of {request_id}", label=label, worker=worker)
                self.calls.release(call, owner)
            self.router.release(worker)

    @rule(who=st.integers(1, 2))
    def break_off(self, who: int) -> None:
        self.calls.end_stream(self.owners[who])
        for request_id, (_, worker, owner) in list(self.held.items()):
            if owner is self.owners[who]:
                del self.held[request_id]
                self.router.release(worker)

    @invariant()
    def loads_are_the_routers(self) -> None:
        assert loads(self.calls) == self.router.loads()
        held = Counter(worker for _, worker, _ in self.held.values())
        assert all(count == held[worker] for worker, count in loads(self.calls).items())


Retries.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRetries = Retries.TestCase
