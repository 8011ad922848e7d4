"""Whatever becomes of requests in Serve's router, each counts once at most, and none once all have ended."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from coresched_ray.attempts import Attempt, Attempts
from coresched_ray.replica_ring import ReplicaRing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

PICK = st.integers(0, 1000)


@dataclass(eq=False)
class Request:
    """As Serve's router sees it; `owed` are completions that it is still to be told of."""

    metadata: SimpleNamespace
    state: str = "new"
    attempt: Any = None
    replica: Any = None
    owed: list[str] = field(default_factory=list)
    future: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(done=lambda: False))


class Serve(RuleBasedStateMachine):
    """A request waits, is assigned, and then is sent, refused, reserved or dropped."""

    @initialize()
    def make(self) -> None:
        self.ring: ReplicaRing[str] = ReplicaRing()
        self.attempts = Attempts(self.ring)
        self.requests: list[Request] = []
        self.ring.place({"a": 0, "b": 1, "c": 2})

    def some(self, pick: int, *states: str) -> Request | None:
        found = [request for request in self.requests if request.state in states]
        return found[pick % len(found)] if found else None

    @rule(label=st.sampled_from([None, "x", "y"]), shared=st.booleans())
    def arrives(self, label: str | None, shared: bool) -> None:
        internal_id = "shared" if shared else f"id-{len(self.requests)}"
        request = Request(SimpleNamespace(internal_request_id=internal_id))
        self.requests.append(request)
        self.begin(request, label)

    def begin(self, request: Request, label: str | None) -> None:
        request.attempt = self.attempts.begin(request, label)
        request.state = "waiting"

    @rule(pick=PICK, tried=st.frozensets(st.sampled_from("abc")))
    def is_chosen_for(self, pick: int, tried: frozenset[str]) -> None:
        if request := self.some(pick, "waiting"):
            self.attempts.charge(request.attempt, tried)

    @rule(pick=PICK)
    def backs_off(self, pick: int) -> None:
        if request := self.some(pick, "waiting"):
            self.attempts.uncharge(request.attempt)

    @rule(pick=PICK)
    def is_cancelled_as_it_waits(self, pick: int) -> None:
        if request := self.some(pick, "waiting"):
            self.attempts.drop(request.attempt, request)
            request.state = "ended" if not request.owed else "gone"

    @rule(pick=PICK, replica=st.sampled_from("abc"), is_charged=st.booleans(), sends=st.booleans())
    def is_assigned(self, pick: int, replica: str, is_charged: bool, sends: bool) -> None:
        request = self.some(pick, "waiting")
        if request is None:
            return
        if is_charged and request.attempt.replica is not None:
            replica = request.attempt.replica
        self.attempts.assign(request.attempt, request, replica, request)
        request.replica = replica
        request.state = "reserved"
        if sends:
            self.attempts.sent(replica, request)
            request.owed.append(replica)
            request.state = "sent"

    @rule(pick=PICK)
    def is_refused_and_tried_again(self, pick: int) -> None:
        if request := self.some(pick, "sent", "reserved"):
            self.begin(request, request.attempt.label)

    @rule(pick=PICK)
    def completes(self, pick: int) -> None:
        owing = [request for request in self.requests if request.owed]
        if owing:
            request = owing[pick % len(owing)]
            self.complete(request, request.owed.pop(0))

    def complete(self, request: Request, replica: str) -> None:
        self.attempts.completed(replica, request.metadata.internal_request_id)
        if not request.owed and request.state in ("sent", "gone"):
            request.state = "ended"

    @rule(pick=PICK)
    def gives_a_reservation_up(self, pick: int) -> None:
        if request := self.some(pick, "reserved"):
            self.forget(request)

    def forget(self, request: Request) -> None:
        attempt: Attempt = request.attempt
        self.attempts.end_unsent(attempt)
        request.state = "gone" if request.owed else "ended"

    @rule(slots=st.permutations(["a", "b", "c", "d"]), count=st.integers(1, 4))
    def replicas_change(self, slots: list[str], count: int) -> None:
        self.ring.place({replica: slot for slot, replica in enumerate(slots[:count])})

    @invariant()
    def none_is_counted_twice(self) -> None:
        if hasattr(self, "ring"):
            alive = sum(request.state != "ended" for request in self.requests)
            assert sum(self.ring.in_flight().values()) <= alive

    def teardown(self) -> None:
        if not hasattr(self, "ring"):
            return
        for request in self.requests:
            if request.state == "waiting":
                self.attempts.drop(request.attempt, request)
            elif request.state == "reserved":
                self.forget(request)
            while request.owed:
                self.complete(request, request.owed.pop(0))
        assert self.ring.in_flight() == {}
        assert not self.attempts._assigned
        assert not self.attempts._waiting


Serve.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestServe = Serve.TestCase
