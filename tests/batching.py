"""A Batches service without a server: a clock that tests set, and calls that fill in what does not matter."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields
from itertools import count
from typing import Any, cast

import grpc
import pytest

from coresched.service.batches.facts import AnyFact, BatchFact
from coresched.service.batches.ledger import Ledger
from coresched.service.batches.limits import Limits
from coresched.service.batches.samples import SampleRecord
from coresched.service.batches.servicer import BatchesService
from coresched.service.clock import ServiceClock
from coresched.service.refusal import RefusedError
from coresched.service.table import RoutingTable
from coresched.v1 import batches_pb2 as pb

NUMBERS = count()
_COMPARED = [field.name for field in fields(SampleRecord) if field.name not in ("holder", "entry")]


class ManualClock(ServiceClock):
    def __init__(self, now: float = 1000.0) -> None:
        self.moment = now

    def now(self) -> float:
        return self.moment


class MemoryLog:
    """Keeps what it is given, as a journal would."""

    def __init__(self) -> None:
        self.facts: list[BatchFact] = []
        self.forgotten: list[int] = []

    def append(self, fact: AnyFact) -> int:
        self.facts.append(cast(BatchFact, fact))
        return len(self.facts)

    async def committed(self, sequence: int) -> None:
        return

    def forget(self, keys: Collection[int]) -> None:
        self.forgotten += keys


class Bench:
    """One service and what it stands on. Calls return answers or raise RefusedError; waits are tasks."""

    def __init__(
        self,
        *workers: str,
        limits: Limits | None = None,
        clock: ManualClock | None = None,
        replayed: list[BatchFact] | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.log = MemoryLog()
        self.table = RoutingTable(dict.fromkeys(workers, 1.0))
        self.service = BatchesService(self.table, log=self.log, clock=self.clock, limits=limits)
        if replayed is not None:
            for fact in replayed:
                self.service.replay(fact)
            self.log.facts += replayed
            self.service.resume()

    @property
    def ledger(self) -> Ledger:
        return self.service.parts.ledger

    def restarted(self, *workers: str) -> Bench:
        """Another life of the service, from the facts so far."""
        return Bench(*workers, clock=self.clock, replayed=list(self.log.facts))

    def advance(self, seconds: float) -> None:
        """Let time pass, and end what ends by time."""
        self.clock.moment += seconds
        self.service.parts.expiry.expire()

    def open(
        self, batch: str = "b", c_s: int = 2, c_e: int | None = 1, grace_s: float = 30.0, **options: Any
    ) -> str:
        """A session in the batch."""
        asked = pb.BatchOptions(sample_concurrency=c_s, environment_concurrency=c_e, **options)
        call = pb.OpenBatchRequest(request_id=new_id(), batch=batch, options=asked, grace_s=grace_s)
        return self.service.sessions.open_batch(call).session

    def submit(self, session: str, *samples: str) -> list[int]:
        call = pb.SubmitSamplesRequest(request_id=new_id(), session=session, samples=samples)
        return list(self.service.samples.submit_samples(call).states)

    def submit_expected(self, session: str, **expected: float) -> None:
        """Samples by name, with what is expected of them; -1 for nothing."""
        call = pb.SubmitSamplesRequest(
            request_id=new_id(), session=session, samples=list(expected), expected=list(expected.values())
        )
        self.service.samples.submit_samples(call)

    def wait(self, session: str, sample: str | None = None, request_id: str = "") -> asyncio.Task[Any]:
        call = pb.AwaitAdmissionRequest(request_id=request_id or new_id(), session=session, sample=sample)
        return asyncio.ensure_future(self.service.waits.await_admission(call))

    async def admit(self, session: str, *samples: str) -> None:
        """Claim samples that are admitted at once."""
        for sample in samples:
            answer = await settled(self.wait(session, sample))
            assert answer.sample == sample

    def acquire(
        self, session: str, sample: str, max_s: float | None = None, request_id: str = ""
    ) -> asyncio.Task[Any]:
        call = pb.AcquireEnvironmentRequest(
            request_id=request_id or new_id(), session=session, sample=sample, max_s=max_s
        )
        return asyncio.ensure_future(self.service.waits.acquire_environment(call))

    def house(self, session: str, sample: str, request_id: str = "") -> asyncio.Task[Any]:
        call = pb.AcquireResidentRequest(request_id=request_id or new_id(), session=session, sample=sample)
        return asyncio.ensure_future(self.service.waits.acquire_resident(call))

    def unhouse(self, session: str, sample: str, failed: bool = False, request_id: str = "") -> float:
        call = pb.ReleaseResidentRequest(
            request_id=request_id or new_id(), session=session, sample=sample, failed=failed
        )
        return self.service.samples.release_resident(call).resident_s

    def start(self, session: str, sample: str, *exclude: str) -> str:
        call = pb.StartTurnRequest(request_id=new_id(), session=session, sample=sample, exclude=exclude)
        return self.service.samples.start_turn(call).worker

    def finish_turn(self, session: str, sample: str, failed: bool = False) -> float:
        call = pb.FinishTurnRequest(request_id=new_id(), session=session, sample=sample, failed=failed)
        return self.service.samples.finish_turn(call).inference_s

    def release(self, session: str, sample: str, failed: bool = False) -> pb.ReleaseEnvironmentResponse:
        call = pb.ReleaseEnvironmentRequest(
            request_id=new_id(), session=session, sample=sample, failed=failed
        )
        return self.service.samples.release_environment(call)

    def finish(self, session: str, sample: str, withdrawn: bool = False) -> None:
        call = pb.FinishSampleRequest(
            request_id=new_id(), session=session, sample=sample, withdrawn=withdrawn
        )
        self.service.samples.finish_sample(call)

    def leave(self, session: str, keep_open: bool = False) -> pb.BatchProgress:
        call = pb.LeaveBatchRequest(request_id=new_id(), session=session, keep_open=keep_open)
        return self.service.sessions.leave_batch(call).progress

    def close(self, batch: str = "b") -> pb.BatchProgress:
        return self.service.sessions.close_batch(
            pb.CloseBatchRequest(request_id=new_id(), batch=batch)
        ).progress

    def beat(self, session: str) -> pb.BatchProgress:
        return self.service.sessions.heartbeat(pb.HeartbeatRequest(session=session)).progress

    def report(self, batch: str = "b") -> dict[str, pb.SampleReport]:
        report = self.service.reads.get_report(pb.GetReportRequest(batch=batch))
        return {sample.sample: sample for sample in report.samples}

    def state(self, sample: str, batch: str = "b") -> str:
        name = pb.SampleState.Name(self.report(batch)[sample].state)
        return name.removeprefix("SAMPLE_STATE_").lower()

    @contextmanager
    def refused(self, code: grpc.StatusCode, field: str, said: str) -> Iterator[None]:
        """What is called here is refused with this code, about this field, and changes nothing."""
        before, facts = snapshot(self.ledger), len(self.log.facts)
        loads = self.in_flight()
        with pytest.raises(RefusedError, match=said) as caught:
            yield
        assert (caught.value.code, caught.value.field) == (code, field)
        assert caught.value.message.startswith(field)
        assert "\n" not in caught.value.message
        assert (snapshot(self.ledger), len(self.log.facts), self.in_flight()) == (before, facts, loads)

    def in_flight(self) -> dict[str, int]:
        return {name: entry.in_flight for name, entry in self.table.workers().items()}


def new_id() -> str:
    return f"call {next(NUMBERS)}"


async def ticks(number: int = 5) -> None:
    """Let every task go on as far as it can."""
    for _ in range(number):
        await asyncio.sleep(0)


async def settled(task: asyncio.Task[Any]) -> Any:
    """What a wait returned or raised, which must have ended by now."""
    await ticks()
    assert task.done()
    return task.result()


async def blocked(*tasks: asyncio.Task[Any]) -> None:
    await ticks()
    assert not any(task.done() for task in tasks)


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await ticks()
    assert task.cancelled()


def snapshot(ledger: Ledger) -> dict[str, Any]:
    """The whole state, for comparisons."""
    return {
        "batches": {
            key: {
                "batch": (batch.tenant, batch.name, batch.options, batch.opened_at, batch.closed_at),
                "abandoned_at": batch.abandoned_at,
                "totals": astuple(batch.totals),
                "open": (len(batch.open), getattr(batch.open.first(), "name", None)),
                "sessions": list(batch.sessions),
                "coordinator": batch.coordinator.samples(),
                "samples": [
                    (
                        [getattr(record, name) for name in _COMPARED],
                        record.holder and record.holder.name,
                        batch.state(record),
                        record.name in batch.coordinator and batch.coordinator.times(record.name),
                    )
                    for record in batch.in_order
                ],
            }
            for key, batch in ledger.batches.items()
        },
        "sessions": {
            name: (session.batch.key, session.grace_s, list(session.held), session.ended)
            for name, session in ledger.sessions.items()
        },
        "next": ledger.next_key,
    }
