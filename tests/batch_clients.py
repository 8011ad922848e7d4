"""Harness processes as the Batches service sees them, and a record of what they were told."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from coresched.v1 import batches_pb2 as pb
from coresched.v1.batches_pb2_grpc import BatchesStub

A = TypeVar("A", bound=Message)


def new_id() -> str:
    return str(uuid.uuid4())


@dataclass
class Record:
    """What all clients were told, in the order in which one event loop heard it.

    A slot counts as held from the answer that gave it until the call that gives it back is sent, so that the
    service can only have more of them in use, never fewer.
    """

    sample_concurrency: int
    environment_concurrency: int
    holders: dict[str, str] = field(default_factory=dict)
    in_environment: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    admissions: Counter[str] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    answered: list[tuple[str, Message, Message]] = field(default_factory=list)
    retries: int = 0
    most_admitted: int = 0
    most_in_environment: int = 0

    def admitted(self, sample: str, session: str) -> None:
        assert sample not in self.holders, (
            f"{sample} is held by {self.holders[sample]}, admitted to {session}"
        )
        assert sample not in self.finished
        self.holders[sample] = session
        self.admissions[sample] += 1
        # Turns count from the last admission on.
        self.turns[sample] = self.stages[sample] = 0
        self.most_admitted = max(self.most_admitted, len(self.holders))
        assert len(self.holders) <= self.sample_concurrency

    def granted(self, sample: str) -> None:
        self.in_environment.add(sample)
        self.most_in_environment = max(self.most_in_environment, len(self.in_environment))
        assert len(self.in_environment) <= self.environment_concurrency

    def gone(self, session: str) -> None:
        """The session is silent from now on; what it held may be admitted again."""
        for sample in [sample for sample, holder in self.holders.items() if holder == session]:
            del self.holders[sample]
            self.in_environment.discard(sample)


class Client:
    """One session: it takes samples as they are admitted and runs their stages, `lanes` samples at a time."""

    def __init__(
        self, address: str, batch: str, record: Record, chance: random.Random, *, grace_s: float
    ) -> None:
        self._channel = grpc.aio.insecure_channel(
            address, options=[("grpc.max_reconnect_backoff_ms", 100), ("grpc.use_local_subchannel_pool", 1)]
        )
        self.stub = BatchesStub(self._channel)
        self._batch = batch
        self._record = record
        self._chance = chance
        self._grace_s = grace_s
        self.session = ""

    async def call(self, name: str, request: Message) -> Any:
        """The answer, the same call sent again as long as the service is away."""
        method: Callable[..., Awaitable[Message]] = getattr(self.stub, name)
        while True:
            try:
                answer = await method(request, wait_for_ready=True, timeout=60)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                self._record.retries += 1
                await asyncio.sleep(0.01)
            else:
                self._record.answered.append((name, request, answer))
                return answer

    async def join(self, samples: list[str]) -> None:
        options = pb.BatchOptions(
            sample_concurrency=self._record.sample_concurrency,
            environment_concurrency=self._record.environment_concurrency,
        )
        opened = await self.call(
            "OpenBatch",
            pb.OpenBatchRequest(
                request_id=new_id(), batch=self._batch, options=options, grace_s=self._grace_s
            ),
        )
        self.session = opened.session
        await self.call(
            "SubmitSamples",
            pb.SubmitSamplesRequest(request_id=new_id(), session=self.session, samples=samples),
        )

    async def run(self, lanes: int, *, stop: asyncio.Event | None = None) -> None:
        """Until every sample of the batch has ended, or the client is stopped without a word."""
        beating = asyncio.create_task(self._beat())
        running = asyncio.gather(*(self._lane() for _ in range(lanes)))
        try:
            if stop is None:
                await running
            else:
                await asyncio.wait(
                    (running, stopped := asyncio.ensure_future(stop.wait())), return_when="FIRST_COMPLETED"
                )
                stopped.cancel()
                self._record.gone(self.session)
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
        finally:
            beating.cancel()
            running.cancel()

    async def close(self) -> None:
        await self._channel.close()

    async def _beat(self) -> None:
        while True:
            await self.call("Heartbeat", pb.HeartbeatRequest(session=self.session))
            await asyncio.sleep(self._grace_s / 4)

    async def _lane(self) -> None:
        while True:
            wait = pb.AwaitAdmissionRequest(request_id=new_id(), session=self.session)
            admission = await self.call("AwaitAdmission", wait)
            if not admission.sample:
                return
            self._record.admitted(admission.sample, self.session)
            assert admission.admissions >= self._record.admissions[admission.sample]
            await self._trajectory(admission.sample)

    async def _trajectory(self, sample: str) -> None:
        record, of = self._record, {"session": self.session, "sample": sample}
        for stage in range(turns := self._chance.randint(1, 4)):
            await self.call("StartTurn", pb.StartTurnRequest(request_id=new_id(), **of))
            await asyncio.sleep(self._chance.random() * 0.02)
            failed = self._chance.random() < 0.1
            await self.call("FinishTurn", pb.FinishTurnRequest(request_id=new_id(), failed=failed, **of))
            record.turns[sample] += not failed
            if failed or stage == turns - 1:
                continue
            acquire = pb.AcquireEnvironmentRequest(request_id=new_id(), **of)
            await self.call("AcquireEnvironment", acquire)
            record.granted(sample)
            await asyncio.sleep(self._chance.random() * 0.02)
            record.in_environment.discard(sample)
            release = pb.ReleaseEnvironmentRequest(request_id=new_id(), **of)
            await self.call("ReleaseEnvironment", release)
            record.stages[sample] += 1
        del record.holders[sample]
        await self.call("FinishSample", pb.FinishSampleRequest(request_id=new_id(), **of))
        record.finished.add(sample)
