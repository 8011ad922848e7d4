"""The calls that change nothing: lists, reports and the stream of progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from grpc import StatusCode

from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchFact
from coresched.service.batches.limits import (
    LONGEST_INTERVAL_S,
    REPORTED_SAMPLES,
    SHORTEST_INTERVAL_S,
    USUAL_INTERVAL_S,
)
from coresched.service.batches.parts import Parts
from coresched.service.batches.reports import progress, sample_report
from coresched.service.batches.waits import stopping
from coresched.service.identity import current_tenant
from coresched.service.refusal import RefusedError, shown
from coresched.v1 import batches_pb2 as pb


class ReadCalls:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._watchers: dict[int, set[asyncio.Event]] = {}
        self._stopped = asyncio.Event()
        parts.recorder.listeners.append(self._on_fact)

    def list_batches(self, call: pb.ListBatchesRequest) -> pb.ListBatchesResponse:
        now = self._parts.clock.now()
        batches = self._parts.ledger.open_batches(current_tenant())
        return pb.ListBatchesResponse(batches=[progress(batch, now) for batch in batches])

    def get_report(self, call: pb.GetReportRequest) -> pb.GetReportResponse:
        batch = self._parts.access.batch(call.batch)
        limit = call.limit or REPORTED_SAMPLES
        if not 1 <= limit <= REPORTED_SAMPLES:
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT,
                "limit",
                f"limit must be from 1 to {REPORTED_SAMPLES}, or 0 for {REPORTED_SAMPLES}, got {limit}",
            )
        first = 0
        if call.after:
            after = batch.samples.get(call.after)
            if after is None:
                raise RefusedError(
                    StatusCode.NOT_FOUND,
                    "after",
                    f"after must name a sample of the batch, got {shown(call.after)}, which is none",
                )
            first = after.place + 1
        page = batch.in_order[first : first + limit]
        return pb.GetReportResponse(
            progress=progress(batch, self._parts.clock.now()),
            samples=[sample_report(batch, record) for record in page],
            more=first + limit < len(batch.in_order),
        )

    async def watch_progress(
        self,
        call: pb.WatchProgressRequest,
        send: Callable[[pb.WatchProgressResponse], Awaitable[None]],
    ) -> None:
        """Send where the batch stands until it is closed. A slow reader gets fewer messages.

        Refused: INVALID_ARGUMENT, NOT_FOUND, and as calls that wait: RESOURCE_EXHAUSTED, UNAVAILABLE.
        """
        batch = self._parts.access.batch(call.batch)
        interval_s = call.interval_s if call.HasField("interval_s") else USUAL_INTERVAL_S
        if not SHORTEST_INTERVAL_S <= interval_s <= LONGEST_INTERVAL_S:
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT,
                "interval_s",
                f"interval_s must be from {SHORTEST_INTERVAL_S:g} to {LONGEST_INTERVAL_S:g} seconds, "
                f"got {interval_s:g}",
            )
        changed = asyncio.Event()
        watchers = self._watchers.setdefault(batch.key, set())
        with self._parts.waits.blocking(batch.tenant):
            watchers.add(changed)
            try:
                while True:
                    changed.clear()
                    closed = batch.closed_at is not None
                    now = self._parts.clock.now()
                    await send(pb.WatchProgressResponse(progress=progress(batch, now)))
                    if closed:
                        return
                    await self._pause(interval_s)
                    await changed.wait()
                    if self._stopped.is_set():
                        raise stopping()
            finally:
                watchers.discard(changed)
                if not watchers and self._watchers.get(batch.key) is watchers:
                    del self._watchers[batch.key]

    def stop(self) -> None:
        """End every stream."""
        self._stopped.set()
        for watchers in self._watchers.values():
            for changed in watchers:
                changed.set()

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not past the stop."""
        try:
            await asyncio.wait_for(self._stopped.wait(), seconds)
        except asyncio.TimeoutError:
            return

    def _on_fact(self, fact: BatchFact, effects: Effects) -> None:
        for changed in self._watchers.get(effects.batch.key, ()):
            changed.set()
