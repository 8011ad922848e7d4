"""Running the plan: each trajectory through the blocks that a harness uses, on endpoints that may fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import aiohttp

from coresched.client.embedded import Batch
from coresched.client.errors import BatchClosedError, ServiceError
from coresched.errors import InputError
from coresched.lab.replay.endpoint import Endpoint, generate
from coresched.lab.replay.events import (
    Admission,
    Completion,
    EnvironmentStage,
    EventLog,
    FailedInference,
    Inference,
)
from coresched.lab.replay.failure import EndpointError, ReplayError
from coresched.lab.replay.plan import Plan, PlannedSample, ReplaySettings
from coresched.lab.replay.prompts import Conversation, Ids, TokenSource
from coresched.lab.replay.protocol import Protocol, check_counts

if TYPE_CHECKING:  # which would load gRPC
    from coresched.client.embedded import Sample as LocalSample
    from coresched.client.remote.async_batch import RemoteBatch
    from coresched.client.remote.async_sample import Sample as RemoteSample

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 5.0
"""Between two attempts of a turn, in seconds of the wall clock; each pause is twice the one before."""


@dataclass(frozen=True)
class Ending:
    """How a replay ended, and why if not by itself."""

    status: Literal["completed", "interrupted", "failed"]
    reason: str | None = None


def embedded_batch(settings: ReplaySettings, endpoints: Sequence[Endpoint]) -> Batch:
    """A batch in this process; it routes unless the turns go round. Raises ValueError for a bad setting."""
    return Batch(
        sample_concurrency=settings.sample_concurrency,
        environment_concurrency=settings.environment_concurrency,
        environment_policy=settings.environment_policy,
        band_s=settings.band_s / settings.speed,
        bucket_s=settings.bucket_s / settings.speed,
        workers=[one.name for one in endpoints] if settings.batch_routes else None,
        # A bound that no load exceeds leaves each label at home.
        load_bound=1e6 if settings.router == "consistent-hash" else settings.load_bound,
    )


class _StoppedError(Exception):
    """The person who runs the replay has had enough of it."""


class Replay:
    """One replay; ``run`` may be called once.

    ``workers`` are the names of those behind a gateway, by what it calls them. ``progress(turns, samples)``
    is called with what is completed after each turn and each sample.
    """

    def __init__(
        self,
        plan: Plan,
        settings: ReplaySettings,
        tokens: TokenSource,
        endpoints: Sequence[Endpoint],
        protocol: Protocol,
        session: aiohttp.ClientSession,
        log: EventLog,
        progress: Callable[[int, int], None] = lambda turns, samples: None,
        workers: Mapping[str, str] | None = None,
    ) -> None:
        self._samples: Mapping[str, PlannedSample] = {sample.label: sample for sample in plan.samples}
        self._settings = settings
        self._tokens = tokens
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self._round = 0
        self._protocol = protocol
        self._session = session
        self._log = log
        self._progress = progress
        self._workers = workers or {}
        self._lost: str | None = None
        self._failed: asyncio.Future[None] | None = None
        self._turns = 0
        self._completed = 0
        self._began = 0.0

    async def run(self, batch: Batch | RemoteBatch, stop: asyncio.Event) -> Ending:
        """Replay every sample, until the end, until one cannot go on, or until ``stop`` is set.

        Raises InputError if a service refuses the batch.
        """
        entered = False
        try:
            async with batch:
                entered = True
                self._began = time.perf_counter()
                await self._run_inside(batch, stop)
            return Ending("completed")
        except ValueError as error:
            if entered:
                raise
            raise InputError(str(error)) from None
        except _StoppedError:
            return Ending("interrupted", "stopped by a signal")
        except (ReplayError, ServiceError, BatchClosedError) as error:
            return Ending("failed", str(error))

    def give_up(self, reason: str) -> None:
        """End the replay as failed: what it cannot do without is gone."""
        self._lost = reason
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(ReplayError(reason))

    async def _run_inside(self, batch: Batch | RemoteBatch, stop: asyncio.Event) -> None:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failed = failed
        if self._lost is not None:
            self.give_up(self._lost)
        samples: list[asyncio.Task[None]] = []

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None and not failed.done():
                failed.set_exception(error)

        async def feed() -> None:
            await batch.submit(self._samples)
            async for sample in batch.admissions():
                samples.append(asyncio.create_task(self._trajectory(sample)))
                samples[-1].add_done_callback(ended)
            await asyncio.gather(*samples)

        feeding, stopping = asyncio.create_task(feed()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((feeding, stopping, failed), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                raise _StoppedError
            await (failed if failed.done() else feeding)
        finally:
            if not failed.cancel() and not failed.cancelled():
                failed.exception()  # seen, also where a signal came first
            for task in (feeding, stopping, *samples):
                task.cancel()
            await asyncio.gather(feeding, stopping, *samples, return_exceptions=True)

    def _now(self) -> float:
        return (time.perf_counter() - self._began) * self._settings.speed

    async def _trajectory(self, sample: LocalSample | RemoteSample) -> None:
        planned = self._samples[sample.id]
        async with sample:
            self._log.add(Admission(sample.id, self._now()))
            conversation = Conversation(planned.trajectory, self._tokens)
            for number, duration_s in enumerate(planned.environment_s):
                reply = await self._turn(sample, planned, number, conversation)
                self._turns += 1
                self._progress(self._turns, self._completed)
                if duration_s is not None:
                    await self._environment(sample, number, duration_s, conversation, reply)
        self._log.add(Completion(sample.id, self._now()))
        self._completed += 1
        self._progress(self._turns, self._completed)

    async def _environment(
        self,
        sample: LocalSample | RemoteSample,
        turn: int,
        duration_s: float,
        conversation: Conversation,
        reply: Ids,
    ) -> None:
        requested_s = self._now()
        async with sample.environment():
            started_s = self._now()
            conversation.answered(turn, reply)  # here, where its time is part of the pause
            while (left_s := started_s + duration_s - self._now()) > 0:
                await asyncio.sleep(left_s / self._settings.speed)
            ended_s = self._now()
        self._log.add(EnvironmentStage(sample.id, turn, requested_s, started_s, ended_s, duration_s))

    async def _turn(
        self,
        sample: LocalSample | RemoteSample,
        planned: PlannedSample,
        number: int,
        conversation: Conversation,
    ) -> Ids:
        """The reply of one turn, after as many attempts as patience allows; one of them counts."""
        recorded = planned.trajectory.turns[number]
        labelled = self._settings.labelled
        label = sample.id if labelled else None
        body = self._protocol.body(conversation.text, label, recorded.output_tokens)
        where = f"trajectory {planned.trajectory.id!r}, turns[{number}]"
        routed = self._settings.batch_routes
        avoided: tuple[str, ...] = ()
        attempt, pause_s, give_up_at = 0, FIRST_PAUSE_S, None
        while True:
            try:
                async with sample.inference(exclude=avoided if routed else ()) as turn:
                    endpoint = self._endpoint(turn.worker if routed else None, avoided, where)
                    sent_s = self._now()
                    headers = turn.headers if labelled else {}
                    reply = await generate(self._session, endpoint, self._protocol, body, headers)
                    ended_s = self._now()
            except EndpointError as error:
                now = time.perf_counter()
                self._log.add(
                    FailedInference(sample.id, number, endpoint.name, sent_s, self._now(), str(error))
                )
                pause_s = min(pause_s, LONGEST_PAUSE_S)
                give_up_at = give_up_at or now + self._settings.patience_s
                if not error.may_retry or now + pause_s > give_up_at:
                    tried = f" (tried for {self._settings.patience_s:g} s)" if error.may_retry else ""
                    raise ReplayError(f"{where}: endpoint {endpoint} {error}{tried}") from None
                await asyncio.sleep(pause_s)
                attempt, pause_s = attempt + 1, 2 * pause_s
                # Once more where the cache is, unless that has taken too long already; then elsewhere.
                elsewhere = (attempt > 1 or error.timed_out) and len(self._endpoints) > 1
                avoided = (endpoint.name,) if elsewhere else ()
                continue
            answer = reply.answer
            check_counts(answer, conversation.tokens, recorded.output_tokens, f"{where}: endpoint {endpoint}")
            first_token_s = reply.virtual_first_token_s
            if first_token_s is None and answer.first_token_s is not None:
                first_token_s = answer.first_token_s * self._settings.speed
            self._log.add(
                Inference(
                    sample=sample.id,
                    turn=number,
                    worker=self._workers.get(reply.worker, reply.worker) if reply.worker else endpoint.name,
                    sent_s=sent_s,
                    ended_s=ended_s,
                    prompt_tokens=answer.prompt_tokens,
                    cached_tokens=answer.cached_tokens,
                    output_tokens=len(answer.reply),
                    first_token_s=first_token_s,
                )
            )
            return answer.reply

    def _endpoint(self, worker: str | None, avoided: Collection[str], where: str) -> Endpoint:
        """That of the worker the batch chose or, with None, the next in turn."""
        if worker is None:
            names = [name for name in self._endpoints if name not in avoided]
            self._round += 1
            return self._endpoints[names[(self._round - 1) % len(names)]]
        if worker not in self._endpoints:
            raise ReplayError(
                f"{where}: the service chose worker {worker!r}, which is none of --endpoint "
                f"{', '.join(self._endpoints)}; give both the same names"
            )
        return self._endpoints[worker]
