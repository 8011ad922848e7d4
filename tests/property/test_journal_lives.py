"""Random calls, and the journal as a kill at any moment would leave it: recovery is the live state."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from coresched.service.answers import _digest_of
from coresched.service.batches import ledger as ledger_module
from coresched.service.batches.reports import progress, sample_report
from coresched.service.batches.samples import SampleRecord
from coresched.service.clock import ServiceClock
from coresched.service.entry import Standing
from coresched.service.journal import Journal
from coresched.service.refusal import RefusedError
from coresched.service.state import ServiceState
from coresched.service.table import RoutingTable
from coresched.v1 import batches_pb2 as pb
from coresched.v1 import router_pb2

SAMPLES = [f"s{n}" for n in range(7)]
OPTIONS = {
    "a": pb.BatchOptions(sample_concurrency=4, environment_concurrency=1, resident_concurrency=1),
    "b": pb.BatchOptions(sample_concurrency=2, environment_policy=pb.ENVIRONMENT_POLICY_FCFS),
}


class SetClock(ServiceClock):
    """Moves when told, and a little with every look."""

    moment = 1000.0

    def go_on_from(self, at: float) -> None:
        self.moment = max(self.moment, at)

    def now(self) -> float:
        self.moment += 0.01
        return self.moment


def image(state: ServiceState) -> dict[str, Any]:
    """All that facts determine, in plain values."""
    parts = state.batches.parts
    found: dict[str, Any] = {"next key": parts.ledger.next_key}
    for key, batch in parts.ledger.batches.items():
        at = batch.opened_at if batch.closed_at is None else batch.closed_at
        found[f"batch {key}"] = (batch.tenant, batch.name, batch.closed_at, str(progress(batch, at)))
        for record in batch.in_order:
            found[f"sample {key} {record.name}"] = (
                str(sample_report(batch, record)),
                record.holder.name if record.holder else None,
                [getattr(record, name) for name in ("open", "asked", "since", "begun", "worker", "max_s")],
                [getattr(record, name) for name in ("waited_s", "spent_s", "expired_s", "dropped")],
                (record.resident_since, record.resident_spent_s),
            )
        first = batch.open.first()
        found[f"first open {key}"] = first and first.name
    for name, session in parts.ledger.sessions.items():
        found[f"session {name}"] = (session.batch.key, session.grace_s, list(session.held), session.ended)
    for tenant, answers in parts.answers._by_tenant.items():
        for request_id, (kind, known, answer) in answers.items():
            call = known if isinstance(known, str) else _digest_of(kind, known)  # a journal has the digests
            found[f"answer {tenant} {request_id}"] = (call, answer.SerializeToString())
    return found


def workers(table: RoutingTable) -> dict[str, tuple[float, Standing]]:
    """Those that are not removed: one that was removed with turns in flight is not known after a restart."""
    return {
        name: (entry.weight, entry.standing)
        for name, entry in table.workers().items()
        if entry.standing is not Standing.REMOVED
    }


class Life:
    """A service and its clients, at random; `restarted` is another one, from the files as they are."""

    def __init__(self, folder: Path, chance: Random, sessions: list[str], calls: int = 0) -> None:
        self._folder = folder
        self._chance = chance
        self._sessions = sessions
        self._calls = calls
        self._tasks: list[asyncio.Task[object]] = []
        self.journal = Journal(str(folder / "j"))
        self.table = RoutingTable({"w0": 1.0}, virtual_nodes=8)
        self._clock = SetClock()
        self.state = ServiceState(self.table, journal=self.journal, clock=self._clock)
        self.recovered = image(self.state), workers(self.table)
        self.journal.start(pytest.fail)

    async def run(self, steps: int) -> None:
        choices = [
            self._open,
            self._submit,
            *[self._wait] * 5,
            *[self._stage] * 8,
            self._end,
            self._pass_time,
        ]
        for _ in range(steps):
            with suppress(RefusedError):
                self._chance.choice([*choices, self._manage, self._cancel])()
            for _ in range(3):
                await asyncio.sleep(0)

    async def restarted(self) -> Life:
        await self.state.batches.parts.recorder.committed()
        await self.state.router.recorded()
        folder = self._folder / "next"
        folder.mkdir()
        for path in self._folder.glob("j*"):
            shutil.copy(path, folder)
        live = image(self.state), workers(self.table)
        life = Life(folder, self._chance, self._sessions, self._calls)
        assert life.recovered == live
        turns = Counter(record.worker for record in life.records() if record.worker)
        assert {name: entry.in_flight for name, entry in life.table.workers().items()} == {
            name: turns[name] for name in life.table.workers()
        }
        return life

    def records(self) -> list[SampleRecord]:
        batches = self.state.batches.parts.ledger.batches.values()
        return [record for batch in batches for record in batch.in_order]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.journal.close()

    def close_batch(self, name: str) -> None:
        self.state.batches.sessions.close_batch(pb.CloseBatchRequest(**self._of(), batch=name))

    def _of(self) -> dict[str, Any]:
        self._calls += 1
        return {"request_id": str(self._calls)}

    def _in(self) -> dict[str, Any]:
        """Mostly of the session that has the sample, where there is one."""
        session = self._chance.choice(self._sessions[-4:] or ["none"])
        known = self.state.batches.parts.ledger.sessions.get(session)
        held = list(known.held) if known else []
        sample = self._chance.choice(held if held and self._chance.random() < 0.9 else SAMPLES)
        return {**self._of(), "session": session, "sample": sample}

    def _open(self) -> None:
        name = self._chance.choice(list(OPTIONS))
        grace_s = self._chance.choice([20.0, 3000.0])
        call = pb.OpenBatchRequest(**self._of(), batch=name, options=OPTIONS[name], grace_s=grace_s)
        self._sessions.append(self.state.batches.sessions.open_batch(call).session)

    def _submit(self) -> None:
        session = self._chance.choice(self._sessions[-4:] or ["none"])
        samples = self._chance.sample(SAMPLES, 3)
        call = pb.SubmitSamplesRequest(**self._of(), session=session, samples=samples)
        self.state.batches.samples.submit_samples(call)

    def _wait(self) -> None:
        waits, of = self.state.batches.waits, self._in()
        if self._chance.random() < 0.5:
            if self._chance.random() < 0.5:
                del of["sample"]
            self._go_on(waits.await_admission(pb.AwaitAdmissionRequest(**of)))
        elif self._chance.random() < 0.25:
            self._go_on(waits.acquire_resident(pb.AcquireResidentRequest(**of)))
        else:
            max_s = self._chance.choice([None, 5.0])
            self._go_on(waits.acquire_environment(pb.AcquireEnvironmentRequest(**of, max_s=max_s)))

    def _go_on(self, waiting: Coroutine[object, object, object]) -> None:
        async def until_refused() -> None:
            with suppress(RefusedError):
                await waiting

        self._tasks.append(asyncio.create_task(until_refused()))

    def _stage(self) -> None:
        samples, of, chance = self.state.batches.samples, self._in(), self._chance.random()
        failed = self._chance.random() < 0.2
        if chance < 0.35:
            samples.start_turn(pb.StartTurnRequest(**of))
        elif chance < 0.7:
            samples.finish_turn(pb.FinishTurnRequest(**of, failed=failed))
        elif chance < 0.8:
            samples.release_resident(pb.ReleaseResidentRequest(**of, failed=failed))
        elif chance < 0.93:
            samples.release_environment(pb.ReleaseEnvironmentRequest(**of, failed=failed))
        else:
            samples.finish_sample(pb.FinishSampleRequest(**of, withdrawn=failed))

    def _end(self) -> None:
        if self._chance.random() < 0.85:
            return
        sessions, of = self.state.batches.sessions, self._of()
        if self._chance.random() < 0.3:
            self.close_batch(self._chance.choice(list(OPTIONS)))
        elif self._sessions:
            session, keep_open = self._chance.choice(self._sessions), self._chance.random() < 0.5
            sessions.leave_batch(pb.LeaveBatchRequest(**of, session=session, keep_open=keep_open))

    def _pass_time(self) -> None:
        self._clock.moment += self._chance.choice([0.5, 2.0, 15.0])
        self.state.batches.parts.expiry.expire()

    def _manage(self) -> None:
        router, worker = self.state.router, self._chance.choice(["w1", "w2"])
        act: Callable[[], Message] = self._chance.choice(
            [
                lambda: router.register_worker(router_pb2.RegisterWorkerRequest(**self._of(), worker=worker)),
                lambda: router.drain_worker(router_pb2.DrainWorkerRequest(**self._of(), worker=worker)),
                lambda: router.remove_worker(router_pb2.RemoveWorkerRequest(**self._of(), worker=worker)),
            ]
        )
        act()

    def _cancel(self) -> None:
        waiting = [task for task in self._tasks if not task.done()]
        if waiting:
            self._chance.choice(waiting).cancel()


async def lives(chance: Random, steps: list[int]) -> list[dict[str, Any]]:
    """What each life began with."""
    with tempfile.TemporaryDirectory() as folder:
        first = life = Life(Path(folder), chance, [])
        started = [first]
        try:
            for count in steps:
                await life.run(count)
                life = await life.restarted()
                started.append(life)
            return [life.recovered[0] for life in started]
        finally:
            for life in started:
                await life.end()


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 120), min_size=1, max_size=4))
def test_recovery_is_the_live_state(chance: Random, steps: list[int]) -> None:
    asyncio.run(lives(chance, steps))


def test_the_random_calls_lead_everywhere() -> None:
    found = [image for seed in range(6) for image in asyncio.run(lives(Random(seed), [50] * 8))]
    kinds = Counter(key.split()[0] for image in found for key in image)
    assert kinds["batch"] > 10
    assert kinds["answer"] > 400
    told = str(found)
    for state in pb.SampleState.keys()[1:]:
        assert f"state: {state}" in told


def test_batches_that_were_forgotten_are_gone_and_the_others_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "REMEMBERED_BATCHES", 2)

    async def close_many() -> None:
        with tempfile.TemporaryDirectory() as folder:
            life = Life(Path(folder), Random(1), [])
            for _ in range(6):
                await life.run(60)
                for name in OPTIONS:
                    with suppress(RefusedError):
                        life.close_batch(name)
            await life.run(60)
            live = image(life.state)
            assert sum(key.startswith("batch") for key in live) <= 4
            await life.journal.close()
            again = Life(Path(folder), Random(1), [])
            forgotten = {key for key in live if key.startswith("answer")} - set(again.recovered[0])
            assert forgotten
            assert {key: value for key, value in live.items() if key not in forgotten} == again.recovered[0]
            await again.journal.close()
            journal = Journal(str(Path(folder) / "j"))
            stored = {getattr(fact, "key", None) for _, fact in journal.facts()} - {None}
            assert stored == set(life.state.batches.parts.ledger.batches)
            journal.leave()

    asyncio.run(close_many())
