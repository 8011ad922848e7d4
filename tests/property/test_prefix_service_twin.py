"""The Prefix service against the policy's twin: the same orders and questions, unary and on a stream."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from prefix_queues import StreamEnd, new_id

from coresched.core.reference import ReferencePrefixPolicy, ReferenceWaiting
from coresched.service.prefix.calls import PrefixCalls
from coresched.service.prefix.queues import WaitingQueues
from coresched.v1 import prefix_pb2 as pb

LABELS = st.one_of(st.none(), st.sampled_from([f"k{i}" for i in range(6)]))
TIMES = st.sampled_from([-1.0, 0.0, 0.5])
HITS = st.one_of(st.none(), st.integers(0, 3))
PLACES = st.lists(st.integers(0, 40), min_size=1, max_size=5)


def hit_of(name: str) -> int:
    return int(name) * 7 % 4


class PrefixServices(RuleBasedStateMachine):
    """The same engine before a service called by unary calls, one called on a stream, and the twin."""

    @initialize(capacity=st.integers(1, 4), timed=st.booleans())
    def open(self, capacity: int, timed: bool) -> None:
        self.unary = PrefixCalls(WaitingQueues())
        self.stream = StreamEnd(PrefixCalls(WaitingQueues()))
        self.twin = ReferencePrefixPolicy(capacity)
        self.timed = timed
        self.waiting: list[ReferenceWaiting] = []
        self.running: list[ReferenceWaiting] = []
        self.asked: set[str] = set()
        self.entered = 0
        self.call("open_queue", pb.OpenQueueRequest(label_capacity=capacity))

    def call(self, kind: str, call: Any) -> None:
        """Make a call that changes something on both services, and once more as after a lost reply."""
        call.request_id, call.queue = new_id(), "w0"
        answer = getattr(self.unary, kind)(call)
        for _ in range(2):
            assert getattr(self.unary, kind)(call) == answer
            told = self.stream.send(pb.ScheduleRequest(**{kind: call}))
            assert (told.request_id, told.WhichOneof("answer")) == (call.request_id, kind)
            assert getattr(told, kind) == answer

    @rule(entries=st.lists(st.tuples(LABELS, TIMES, HITS), min_size=1, max_size=6))
    def push(self, entries: list[tuple[str | None, float, int | None]]) -> None:
        requests = []
        for label, queued_at, hit in entries:
            name = str(self.entered)
            twin = ReferenceWaiting(name, label, queued_at if self.timed else float(self.entered))
            twin.hit = hit
            self.waiting.append(twin)
            self.entered += 1
            requests.append(
                pb.QueuedRequest(
                    name=name, label=label, queued_at=queued_at if self.timed else None, hit_tokens=hit
                )
            )
        self.call("push", pb.PushRequest(requests=requests))

    @rule(limit=st.one_of(st.none(), st.integers(1, 5)))
    def order(self, limit: int | None) -> None:
        asked: list[str] = []

        def prefix_hit(request: ReferenceWaiting) -> int:
            asked.append(request.id)
            return hit_of(request.id)

        self.waiting = self.twin.order(self.waiting, prefix_hit)
        assert self.asked.isdisjoint(asked)
        self.asked.update(asked)
        expected = [request.id for request in self.waiting]

        call = pb.OrderRequest(request_id=new_id(), queue="w0", limit=limit)
        answer = self.unary.order(call)
        assert list(answer.unasked) == asked
        if asked:
            assert not answer.names
            hits = [pb.Hit(name=name, tokens=hit_of(name)) for name in asked]
            self.unary.set_hits(pb.SetHitsRequest(request_id=new_id(), queue="w0", hits=hits))
            answer = self.unary.order(call)
        told = self.stream.send(pb.ScheduleRequest(order=call))
        assert list(told.question.names) == asked
        if asked:
            hit_answer = pb.HitAnswer(request_id=call.request_id, tokens=map(hit_of, asked))
            told = self.stream.send(pb.ScheduleRequest(hit_answer=hit_answer))
        assert told.order == answer == pb.OrderResponse(names=expected[:limit], waiting=len(expected))
        if limit is not None and answer.names:
            rest = pb.OrderRequest(request_id=new_id(), queue="w0", after=answer.names[-1])
            assert list(self.unary.order(rest).names) == expected[limit:]
            assert list(self.stream.send(pb.ScheduleRequest(order=rest)).order.names) == expected[limit:]

    def picked(self, source: list[ReferenceWaiting], places: list[int]) -> list[ReferenceWaiting]:
        """Some of the requests, each once; they leave the list."""
        return [source.pop(place % len(source)) for place in places if source]

    @precondition(lambda self: self.waiting)
    @rule(places=PLACES)
    def admitted(self, places: list[int]) -> None:
        admitted = self.picked(self.waiting, places)
        self.call("admitted", pb.AdmittedRequest(names=[request.id for request in admitted]))
        for request in admitted:
            self.twin.admitted(request.label)
        self.running += admitted

    @precondition(lambda self: self.running)
    @rule(places=PLACES)
    def requeue(self, places: list[int]) -> None:
        retracted = self.picked(self.running, places)
        self.call("requeue", pb.RequeueRequest(names=[request.id for request in retracted]))
        self.waiting += retracted

    @rule(waiting=PLACES, running=PLACES)
    def forget(self, waiting: list[int], running: list[int]) -> None:
        gone = self.picked(self.waiting, waiting) + self.picked(self.running, running)
        self.call("forget", pb.ForgetRequest(names=[request.id for request in gone]))

    @rule()
    def reconnect(self) -> None:
        calls = self.stream.calls
        assert self.stream.end() == []
        self.stream = StreamEnd(calls)

    @invariant()
    def everyone_waits_in_the_same_order(self) -> None:
        expected = [request.id for request in self.waiting]
        for name in expected[:1]:
            rest = pb.OrderRequest(request_id=new_id(), queue="w0", after=name)
            assert list(self.unary.order(rest).names) == expected[1:]

    def teardown(self) -> None:
        if hasattr(self, "stream"):
            self.stream.end()


TestPrefixServices = PrefixServices.TestCase
TestPrefixServices.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
