"""Clients of a Batches service that do anything at any time: what holds always, and replay of the facts."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from batching import Bench, ManualClock, new_id, snapshot, ticks
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from coresched.service.batches.batch import Batch
from coresched.service.batches.ledger import Ledger
from coresched.service.batches.limits import Limits
from coresched.service.batches.sessions import Session
from coresched.service.refusal import RefusedError
from coresched.v1 import batches_pb2 as pb

SAMPLES = [f"s{n}" for n in range(6)]
BATCHES = {"b0": (2, 1, 1), "b1": (4, 1, 2), "b2": (3, None, None)}  # C_S, C_E, C_R
LIMITS = Limits(open_batches=2, waiters=6, sessions=3, samples=5)
STEPS = 250
ALIVE = ("waiting", "admitted", "inference", "queued", "environment", "resident_queued")


class Clients:
    """Sessions that mostly work as they should, and the trouble they meet. All chance is of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.bench = Bench("w0", "w1", limits=LIMITS, clock=ManualClock())
        self.sessions: list[str] = []
        self.waits: list[tuple[str, Any, asyncio.Task[Any]]] = []
        self.answered: list[tuple[str, Message, Message]] = []
        self.history: list[tuple[int, Any]] = []
        self.restarted = False
        self.actions: list[tuple[Callable[[], Any], int]] = [
            (self.open, 40),
            (self.submit, 40),
            (self.claim, 150),
            (self.work, 600),
            (self.stray, 60),
            (self.break_off, 80),
            (self.send_again, 80),
            (self.repeat, 40),
            (self.time_passes, 100),
            (self.worker_comes_or_goes, 20),
            (self.leave, 8),
            (self.close, 4),
            (self.restart, 10),
        ]

    async def run(self) -> None:
        actions, weights = zip(*self.actions, strict=True)
        for _ in range(STEPS):
            done = self.chance.choices(actions, weights)[0]()
            if done is not None:
                await done
            await ticks()
            self.check()
        await self.end()

    # Calls: what is refused changes nothing, and what was answered is kept to be sent again.

    def method(self, name: str) -> Any:
        part, _, method = name.partition(".")
        return getattr(getattr(self.bench.service, part), method)

    def do(self, name: str, call: Message) -> Any:
        before, facts = snapshot(self.bench.ledger), len(self.bench.log.facts)
        try:
            answer = self.method(name)(call)
        except RefusedError:
            assert (snapshot(self.bench.ledger), len(self.bench.log.facts)) == (before, facts)
            return None
        self.answered.append((name, call, answer))
        return answer

    async def wait(self, name: str, call: Message) -> None:
        before, facts = snapshot(self.bench.ledger), len(self.bench.log.facts)
        task = asyncio.ensure_future(self.method(name)(call))
        await ticks()
        if task.done() and task.exception() is not None:
            assert isinstance(task.exception(), RefusedError)
            assert (snapshot(self.bench.ledger), len(self.bench.log.facts)) == (before, facts)
        else:
            self.waits.append((name, call, task))

    def living(self) -> list[Session]:
        known = [self.bench.ledger.sessions.get(name) for name in self.sessions]
        return [session for session in known if session is not None and not session.ended]

    def named(self) -> dict[str, str]:
        """Any session with any sample, both of which may be wrong."""
        if not self.sessions:
            return {"request_id": new_id(), "session": "none", "sample": "s0"}
        session = self.chance.choice(self.sessions)
        return {"request_id": new_id(), "session": session, "sample": self.chance.choice(SAMPLES)}

    # Actions.

    def open(self) -> None:
        name, (c_s, c_e, c_r) = self.chance.choice(sorted(BATCHES.items()))
        c_s += self.chance.random() < 0.1
        options = pb.BatchOptions(
            sample_concurrency=c_s, environment_concurrency=c_e, resident_concurrency=c_r, band_s=5
        )
        call = pb.OpenBatchRequest(request_id=new_id(), batch=name, options=options, grace_s=10.0)
        if (answer := self.do("sessions.open_batch", call)) is not None:
            self.sessions.append(answer.session)

    def submit(self) -> None:
        call = self.named()
        del call["sample"]
        names = self.chance.sample(SAMPLES, self.chance.randint(0, 4)) + SAMPLES[: self.chance.random() < 0.1]
        self.do("samples.submit_samples", pb.SubmitSamplesRequest(samples=names, **call))

    async def claim(self) -> None:
        call = self.named()
        if self.chance.random() < 0.6:
            del call["sample"]
        await self.wait("waits.await_admission", pb.AwaitAdmissionRequest(**call))

    async def work(self) -> None:
        """The next step of a sample, as in a run without trouble."""
        held = [(session, record) for session in self.living() for record in session.held.values()]
        if not held:
            return
        session, record = self.chance.choice(held)
        call = {"request_id": new_id(), "session": session.name, "sample": record.name}
        state = session.batch.state(record)
        if state == "inference":
            self.do("samples.finish_turn", pb.FinishTurnRequest(**call))
        elif state == "environment" and self.chance.random() < 0.4:
            self.do("samples.release_environment", pb.ReleaseEnvironmentRequest(**call))
        elif state == "admitted":
            step = self.chance.random()
            if record.resident_since is None and step < 0.2:
                await self.wait("waits.acquire_resident", pb.AcquireResidentRequest(**call))
            elif record.resident_since is not None and step < 0.1:
                self.do("samples.release_resident", pb.ReleaseResidentRequest(**call))
            elif step < 0.45:
                self.do("samples.start_turn", pb.StartTurnRequest(**call))
            elif step < 0.9:
                max_s = self.chance.choice([None, 3.0, 30.0])
                await self.wait(
                    "waits.acquire_environment", pb.AcquireEnvironmentRequest(max_s=max_s, **call)
                )
            else:
                self.do("samples.finish_sample", pb.FinishSampleRequest(**call))

    async def stray(self) -> None:
        """A call that may be out of place."""
        flag, kind = self.chance.random() < 0.5, self.chance.randrange(7)
        if kind == 0:
            exclude = ["w0"] if flag else ["w0", "w1", "w2"]
            self.do("samples.start_turn", pb.StartTurnRequest(exclude=exclude, **self.named()))
        elif kind == 1:
            self.do("samples.finish_turn", pb.FinishTurnRequest(failed=flag, **self.named()))
        elif kind == 2:
            self.do("samples.release_environment", pb.ReleaseEnvironmentRequest(failed=flag, **self.named()))
        elif kind == 3:
            self.do("samples.finish_sample", pb.FinishSampleRequest(withdrawn=flag, **self.named()))
        elif kind == 4:
            self.do("samples.release_resident", pb.ReleaseResidentRequest(failed=flag, **self.named()))
        elif kind == 5:
            await self.wait("waits.acquire_resident", pb.AcquireResidentRequest(**self.named()))
        else:
            await self.wait("waits.acquire_environment", pb.AcquireEnvironmentRequest(**self.named()))

    def break_off(self) -> None:
        pending = [task for _, _, task in self.waits if not task.done()]
        if pending:
            self.chance.choice(pending).cancel()

    async def send_again(self) -> None:
        """A wait that was answered, or broke off, or goes on."""
        broken = [wait for wait in self.waits if wait[2].cancelled()][-3:]
        whole = [wait for wait in self.waits if not wait[2].cancelled()][-9:]
        if not (some := self.chance.choice([broken, whole])):
            return
        name, call, task = self.chance.choice(some)
        facts = len(self.bench.log.facts)
        await self.wait(name, call)
        if not task.done() or task.cancelled() or task.exception() is not None:
            return
        # But for the answer that no sample is left, which changed nothing.
        if getattr(task.result(), "sample", "-") != "":
            assert self.waits[-1][2].result() == task.result()
            assert len(self.bench.log.facts) == facts

    def repeat(self) -> None:
        if self.answered:
            name, call, answer = self.chance.choice(self.answered)
            facts = len(self.bench.log.facts)
            assert self.do(name, call) == answer
            assert len(self.bench.log.facts) == facts

    def time_passes(self) -> None:
        silent = self.chance.choice([*self.living(), None, None, None])
        for session in self.living():
            if session is not silent:
                self.bench.beat(session.name)
        self.bench.advance(self.chance.choice([0.1, 1.0, 4.0, 9.0]))

    def worker_comes_or_goes(self) -> None:
        name = self.chance.choice(["w0", "w1", "w2"])
        entry = self.bench.table.workers().get(name)
        if entry is not None and entry.routable:
            self.bench.table.remove(name)
        else:
            self.bench.table.register(name, 1.0)

    def leave(self) -> None:
        call, keep_open = self.named(), self.chance.random() < 0.5
        del call["sample"]
        self.do("sessions.leave_batch", pb.LeaveBatchRequest(keep_open=keep_open, **call))

    def close(self) -> None:
        call = pb.CloseBatchRequest(request_id=new_id(), batch=self.chance.choice(sorted(BATCHES)))
        self.do("sessions.close_batch", call)

    async def restart(self) -> None:
        routable = [name for name, entry in self.bench.table.workers().items() if entry.routable]
        again = Bench(*routable, limits=LIMITS, clock=self.bench.clock, replayed=list(self.bench.log.facts))
        assert snapshot(again.ledger) == snapshot(self.bench.ledger)
        for _, _, task in self.waits:
            task.cancel()
        await ticks()
        self.bench = again
        self.restarted = True

    # What must hold after each of them.

    def check(self) -> None:
        for batch in self.bench.ledger.batches.values():
            self.check_slots(batch)
            self.check_counts(batch)
            self.check_waits(batch)
        self.check_in_flight()
        waits = self.bench.service.parts.waits
        pending = [call.request_id for _, call, task in self.waits if not task.done()]
        assert waits.blocked == len(pending) <= LIMITS.waiters
        assert all(("", request_id) in waits._by_request for request_id in pending)
        self.history.append((len(self.bench.log.facts), snapshot(self.bench.ledger)))

    def check_slots(self, batch: Batch) -> None:
        coordinator, c_s = batch.coordinator, batch.options.sample_concurrency
        c_e = batch.options.environment_concurrency or 99
        assert coordinator.admitted <= c_s
        assert coordinator.admitted == c_s or coordinator.waiting == 0
        assert coordinator.environment_running <= c_e
        assert coordinator.environment_running == c_e or coordinator.environment_queued == 0
        self.check_resident_slots(batch)

    def check_resident_slots(self, batch: Batch) -> None:
        """At most C_R are held, by admitted samples, and nobody waits beside a free one."""
        coordinator, c_r = batch.coordinator, batch.options.resident_concurrency or 99
        held = [record for record in batch.in_order if record.resident_since is not None]
        queued = [record for record in batch.in_order if batch.state(record) == "resident_queued"]
        assert coordinator.resident == len(held) <= c_r
        assert coordinator.resident_queued == len(queued)
        assert len(held) == c_r or not queued
        for record in held:
            assert record.holder is not None
            assert batch.state(record) in ("admitted", "inference", "queued", "environment")
            assert coordinator.times(record.name).resident_started_at == record.resident_since

    def check_counts(self, batch: Batch) -> None:
        states = Counter(batch.state(record) for record in batch.in_order)
        assert len(batch.open) == states["returned"] == sum(record.open for record in batch.in_order)
        assert batch.coordinator.finished == states["finished"]
        assert batch.withdrawn == states["withdrawn"]
        held = [record for session in batch.sessions.values() for record in session.held.values()]
        assert len(set(map(id, held))) == len(held)  # no sample is held twice
        assert len(held) == sum(record.holder is not None for record in batch.in_order)
        alive = sum(states[state] for state in ALIVE)
        assert len(held) == alive

    def check_waits(self, batch: Batch) -> None:
        waits = self.bench.service.parts.waits
        if waits.first_idle(batch) is not None:
            assert batch.open.first() is None
            assert not batch.complete
        for record in batch.in_order:
            wait = waits._by_sample.get((batch.key, record.name))
            assert (wait is not None) == (batch.state(record) in ("waiting", "queued", "resident_queued"))
            assert wait is None or wait.calls or self.restarted

    def check_in_flight(self) -> None:
        flights = self.bench.service.parts.flights._in_flight
        loads = Counter(flight.worker for flight in flights.values())
        assert loads == {name: load for name, load in self.bench.in_flight().items() if load}
        turns = {
            (batch.key, record.name): record.worker
            for batch in self.bench.ledger.batches.values()
            for record in batch.in_order
            if batch.state(record) == "inference" and record.worker
        }
        assert {place: flight.worker for place, flight in flights.items()}.items() <= turns.items()
        assert self.restarted or len(flights) == len(turns)

    async def end(self) -> None:
        """The facts give the state again at every point; and the end of all batches leaves nothing behind."""
        ledger, applied = Ledger(), 0
        for length, expected in self.history:
            for fact in self.bench.log.facts[applied:length]:
                ledger.apply(fact)
            applied = length
            assert snapshot(ledger) == expected
        for batch in self.bench.ledger.open_batches(""):
            self.bench.close(batch.name)
        await ticks()
        for _, _, task in self.waits:
            assert task.done()
            assert task.cancelled() or task.exception() is None or isinstance(task.exception(), RefusedError)
        assert sum(self.bench.in_flight().values()) == 0


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_holds_always_holds_whatever_clients_do(seed: int) -> None:
    asyncio.run(Clients(seed).run())
