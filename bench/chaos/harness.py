"""One harness process: it takes samples as they are admitted to it, and writes down what happens."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import msgspec

import coresched
from bench.chaos.events import EventLog
from bench.chaos.settings import Settings, Stage, trajectory

BATCH = "chaos"
PROMPT = "Find out why the build of this project fails and mend it. " * 8
RESULT = "The command ended with exit code 1 and said what was wrong. " * 4
_NO_WORKER_S = 0.1  # pause before the next attempt when every worker has just failed


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a harness process works."""

    service: str
    workers: list[str]
    settings: Settings


class Harness:
    def __init__(self, place: Place, log: EventLog, http: aiohttp.ClientSession) -> None:
        self._place = place
        self._log = log
        self._http = http

    async def run(self) -> None:
        """Until every sample of the batch has ended, in a new session whenever one is lost."""
        while True:
            self._log.session += 1
            try:
                await self._work()
            except coresched.SessionLostError:
                self._log.write("session_lost")
            else:
                self._log.write("left")
                return

    async def _work(self) -> None:
        settings = self._place.settings
        asked_at = time.monotonic()
        async with coresched.connect(
            self._place.service,
            batch=BATCH,
            sample_concurrency=settings.sample_concurrency,
            environment_concurrency=settings.environment_concurrency,
            resident_concurrency=settings.resident_concurrency,
            grace_s=settings.grace_s,
        ) as batch:
            self._log.write("joined", asked_at=asked_at)
            await batch.submit(settings.names())
            running: list[asyncio.Task[None]] = []
            try:
                asked_at = time.monotonic()
                async for sample in batch.admissions():
                    self._log.write("admitted", sample.id, asked_at=asked_at)
                    running.append(asyncio.create_task(self._sample(sample)))
                    asked_at = time.monotonic()
            finally:
                for end in await asyncio.gather(*running, return_exceptions=True):
                    # Of a lost session the batch itself tells, on leaving it at the latest.
                    if end is not None and not isinstance(end, coresched.SessionLostError):
                        raise end

    async def _sample(self, sample: Any) -> None:
        log = self._log
        async with sample:
            asked_at = time.monotonic()
            async with sample.resident():
                log.write("resident_granted", sample.id, asked_at=asked_at)
                await self._stages(sample)
                log.write("resident_ended", sample.id)
            asked_at = time.monotonic()
            log.write("finishing", sample.id)
        log.write("finished", sample.id, asked_at=asked_at)

    async def _stages(self, sample: Any) -> None:
        log = self._log
        messages = [{"role": "user", "content": PROMPT}]
        for stage in trajectory(self._place.settings, sample.id):
            reply = await self._turn(sample, stage, messages)
            messages.append({"role": "assistant", "content": reply})
            if stage.environment_s is None:
                break
            asked_at = time.monotonic()
            async with sample.environment():
                log.write("environment_granted", sample.id, asked_at=asked_at)
                await asyncio.sleep(stage.environment_s)
                log.write("environment_ended", sample.id)
            messages.append({"role": "user", "content": RESULT})

    async def _turn(self, sample: Any, stage: Stage, messages: list[dict[str, str]]) -> str:
        """The reply of the first worker that gives one."""
        failed: list[str] = []
        while True:
            asked_at = time.monotonic()
            try:
                async with sample.inference(exclude=failed) as turn:
                    self._log.write("turn_started", sample.id, asked_at=asked_at, worker=turn.worker)
                    return await self._infer(turn, stage, messages)
            except (aiohttp.ClientError, asyncio.TimeoutError):
                failed.append(turn.worker)
            if len(failed) == len(self._place.workers):
                failed.clear()
                await asyncio.sleep(_NO_WORKER_S)

    async def _infer(self, turn: Any, stage: Stage, messages: list[dict[str, str]]) -> str:
        body = {"messages": messages, "max_tokens": stage.reply_tokens}
        try:
            async with self._http.post(
                f"{turn.worker}/v1/chat/completions", json=body, headers=turn.headers
            ) as response:
                answer = await response.json()
                if response.status != 200:
                    raise RuntimeError(f"{turn.worker} answered with status {response.status}: {answer}")
        except (aiohttp.ClientError, asyncio.TimeoutError):
            self._log.write("turn_failed", turn.label, worker=turn.worker)
            raise
        usage = answer["usage"]
        self._log.write(
            "turn_ended",
            turn.label,
            worker=turn.worker,
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        )
        reply: str = answer["choices"][0]["message"]["content"]
        return reply


async def run_harness(place: Place, log: EventLog) -> None:
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        await Harness(place, log, http).run()
