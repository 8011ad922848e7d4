"""What a service tells of itself at one moment, read over gRPC."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message

from coresched.v1 import batches_pb2 as pb
from coresched.v1 import router_pb2
from coresched.v1.batches_pb2_grpc import BatchesStub
from coresched.v1.router_pb2_grpc import RouterStub

CLOSED_SHOWN = 3
"""Batches that are still shown after they were closed, the last ones."""
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Batches and workers.

    Open batches that processes are in come first, in order of opening, then those without, then those that
    were closed while they were watched.
    """

    batches: tuple[pb.BatchProgress, ...]
    workers: router_pb2.ListWorkersResponse

    @property
    def beta(self) -> float | None:
        """Request imbalance since the service started; None before two requests were in flight at a time."""
        return self.workers.imbalance_s / self.workers.busy_s if self.workers.busy_s > 0 else None

    def as_json(self) -> dict[str, Any]:
        """The messages with the names of their fields; null for what is absent."""
        routing = _plain(self.workers)
        return {"batches": [_plain(batch) for batch in self.batches], **routing, "beta": self.beta}


class Reader:
    """Reads one service again and again, and remembers which batches were open."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._closed: dict[str, pb.BatchProgress] = {}

    async def read(self, channel: grpc.aio.Channel) -> Snapshot:
        """Where the service stands now. Raises grpc.aio.AioRpcError."""
        batches: Any = BatchesStub(channel)  # type: ignore[no-untyped-call]
        router: Any = RouterStub(channel)  # type: ignore[no-untyped-call]
        listed = await batches.ListBatches(pb.ListBatchesRequest(), timeout=_TIMEOUT_S)
        workers = await router.ListWorkers(router_pb2.ListWorkersRequest(), timeout=_TIMEOUT_S)
        still = {batch.batch for batch in listed.batches}
        for name in self._open - still:
            report = await self._report(batches, name)
            if report is not None:
                self._closed[name] = report
        for name in [*self._closed]:
            if name in still or len(self._closed) > CLOSED_SHOWN:
                del self._closed[name]
        self._open = still
        in_use_first = sorted(listed.batches, key=lambda batch: batch.sessions == 0)
        return Snapshot((*in_use_first, *self._closed.values()), workers)

    async def _report(self, batches: Any, name: str) -> pb.BatchProgress | None:
        """Where a batch ended; None if the service does not know it any more."""
        try:
            asked = pb.GetReportRequest(batch=name, limit=1)
            answer: pb.GetReportResponse = await batches.GetReport(asked, timeout=_TIMEOUT_S)
            return answer.progress
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise


def _plain(message: Message) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            value = None
        elif isinstance(value, Message):
            value = _plain(value)
        elif field.enum_type is not None:
            value = field.enum_type.values_by_number[value].name
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
            value = [_plain(item) if isinstance(item, Message) else item for item in value]
        values[field.name] = value
    return values
