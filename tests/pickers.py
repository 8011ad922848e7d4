"""An endpoint picker in this process, and what Envoy says to it, message by message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import grpc
from coresched_envoy.endpoints import Endpoint
from coresched_envoy.members import WorkersFile
from coresched_envoy.names import (
    DESTINATION,
    HINT_NAMESPACE,
    LB_NAMESPACE,
    MARK,
    OWN_NAMESPACE,
    SERVED,
    SUBSET,
)
from coresched_envoy.processing import ACCESS_LOG_SERVICE, EXTERNAL_PROCESSOR
from coresched_envoy.server import RunningPicker, Settings, running
from coresched_envoy.wire_pb2 import (
    ProcessingRequest,
    ProcessingResponse,
    StreamAccessLogsMessage,
    StreamAccessLogsResponse,
)
from gateways import FakeWorker

from coresched.gateway.fleet import Fleet
from coresched.listen import TcpAddress

NEVER_S = 3600.0
PATIENCE_S = 10.0


@asynccontextmanager
async def picker(
    *workers: FakeWorker,
    file: WorkersFile | None = None,
    fleet: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[RunningPicker]:
    """A picker before these workers, which are started first. Health checks only if an interval is given."""
    for worker in workers:
        await worker.start()
    names = [f"127.0.0.1:{worker.port}" for worker in workers]
    given = dict.fromkeys(names, 1.0)
    of = Fleet([Endpoint(name) for name in names], **(fleet or {}))
    said = Settings(**{"health_interval_s": NEVER_S, **settings})
    async with running(of, said, TcpAddress("127.0.0.1", 0), given, file) as started:
        yield started
    for worker in workers:
        await worker.kill()


class Asked:
    """One request of Envoy's: its stream of external processing."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.answer = ProcessingResponse()

    @property
    def endpoints(self) -> list[str]:
        """Where the request shall go, by header and metadata alike."""
        (option,) = self.answer.request_headers.response.header_mutation.set_headers
        assert option.header.key == DESTINATION
        text = option.header.raw_value.decode()
        assert self._metadata(LB_NAMESPACE, DESTINATION) == text
        return text.split(",")

    @property
    def mark(self) -> str:
        return self._metadata(OWN_NAMESPACE, MARK)

    @property
    def refused(self) -> int:
        return self.answer.immediate_response.status.code

    def _metadata(self, namespace: str, name: str) -> str:
        text: str = self.answer.dynamic_metadata.fields[namespace].struct_value.fields[name].string_value
        return text

    async def send(self, request: ProcessingRequest) -> ProcessingResponse:
        await self.call.write(request)
        answer: ProcessingResponse = await asyncio.wait_for(self.call.read(), PATIENCE_S)
        return answer

    async def response(self, served: str | None = None, **headers: str) -> None:
        """The headers of the worker's response come, and Envoy ends the stream."""
        await self.headers_of_response(served, **headers)
        await self.end()

    async def headers_of_response(self, served: str | None = None, **headers: str) -> None:
        request = ProcessingRequest()
        request.response_headers.SetInParent()
        add_headers(
            request.response_headers, [(name.replace("_", "-"), text) for name, text in headers.items()]
        )
        if served is not None:
            fields = request.metadata_context.filter_metadata[LB_NAMESPACE].fields
            fields[SERVED].string_value = served
        answer = await self.send(request)
        assert answer.WhichOneof("response") == "response_headers"

    async def end(self) -> None:
        await self.call.done_writing()
        assert await self.call.code() is grpc.StatusCode.OK


class EnvoySide:
    """One Envoy: a connection of its own to the picker."""

    def __init__(self, address: str) -> None:
        # Of its own: channels to one address share a connection unless their options differ.
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._process = self.channel.stream_stream(
            f"/{EXTERNAL_PROCESSOR}/Process",
            request_serializer=ProcessingRequest.SerializeToString,
            response_deserializer=ProcessingResponse.FromString,
        )
        self._log = self.channel.stream_unary(
            f"/{ACCESS_LOG_SERVICE}/StreamAccessLogs",
            request_serializer=StreamAccessLogsMessage.SerializeToString,
            response_deserializer=StreamAccessLogsResponse.FromString,
        )

    async def ask(self, *headers: tuple[str, str], subset: Sequence[str] | str | None = None) -> Asked:
        request = ProcessingRequest()
        add_headers(request.request_headers, headers)
        if subset is not None:
            value = request.metadata_context.filter_metadata[HINT_NAMESPACE].fields[SUBSET]
            if isinstance(subset, str):
                value.string_value = subset
            else:
                value.list_value.extend(subset)
        return await self.send(request)

    async def send(self, request: ProcessingRequest) -> Asked:
        """A request whose first message this is."""
        request.request_headers.SetInParent()
        asked = Asked(self._process())
        asked.answer = await asked.send(request)
        return asked

    async def labelled(self, label: str, **options: Any) -> Asked:
        return await self.ask((":path", "/v1/chat/completions"), ("x-smg-routing-key", label), **options)

    def log(self) -> Any:
        """A stream of the access log; `await log.write(line(...))`."""
        return self._log()

    async def __aenter__(self) -> EnvoySide:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close(None)


def add_headers(to: Any, headers: Sequence[tuple[str, str]]) -> None:
    for name, text in headers:
        header = to.headers.headers.add()
        header.key = name
        header.raw_value = text.encode()


def line(*marks: str, kind: int = 6) -> StreamAccessLogsMessage:
    """Lines of requests with these marks; `kind` 6 is the end of a request."""
    message = StreamAccessLogsMessage()
    for mark in marks:
        common = message.http_logs.log_entry.add().common_properties
        common.access_log_type = kind  # type: ignore[assignment]  # also kinds that the picker does not name
        common.metadata.filter_metadata[OWN_NAMESPACE].fields[MARK].string_value = mark
    return message


async def until(holds: Callable[[], bool]) -> None:
    """Fails if it does not hold in time."""
    end = monotonic() + PATIENCE_S
    while not holds():
        assert monotonic() < end
        await asyncio.sleep(0.01)
