"""The two gRPC services that Envoy calls: external processing, one stream a request, and its access log."""

from __future__ import annotations

import logging
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from coresched.gateway.refusal import RefusedError
from coresched.logs import event
from coresched_envoy.flights import Flight
from coresched_envoy.messages import GO_ON_RESPONSE_HEADERS, go_on, refuse, wants_bodies_back
from coresched_envoy.names import MARK, OWN_NAMESPACE
from coresched_envoy.picker import Picker
from coresched_envoy.wire_pb2 import (
    DownstreamEnd,
    HTTPAccessLogEntry,
    NotSet,
    ProcessingRequest,
    StreamAccessLogsMessage,
    StreamAccessLogsResponse,
)

_logger = logging.getLogger("coresched.epp")

EXTERNAL_PROCESSOR = "envoy.service.ext_proc.v3.ExternalProcessor"
ACCESS_LOG_SERVICE = "envoy.service.accesslog.v3.AccessLogService"

_ENDS = (NotSet, DownstreamEnd)


class Services:
    """Both services around one picker, for one grpc.aio server."""

    def __init__(self, picker: Picker, clock: Any) -> None:
        """`clock` is that of the picker's flights."""
        self._picker = picker
        self._clock = clock
        self.open_streams = 0
        """Requests whose response has no headers yet."""
        self.open_logs = 0

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Under the names of Envoy's services; messages come and go as bytes."""
        process: Any = self._process
        log: Any = self._log
        return (
            grpc.method_handlers_generic_handler(
                EXTERNAL_PROCESSOR, {"Process": grpc.stream_stream_rpc_method_handler(process)}
            ),
            grpc.method_handlers_generic_handler(
                ACCESS_LOG_SERVICE, {"StreamAccessLogs": grpc.stream_unary_rpc_method_handler(log)}
            ),
        )

    async def _process(self, _: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        flight: Flight | None = None
        begun = echo_request = echo_response = False
        self.open_streams += 1
        try:
            while (data := await context.read()) is not grpc.aio.EOF:
                request = ProcessingRequest.FromString(data)
                kind = request.WhichOneof("request")
                if kind == "request_headers":
                    if begun:  # its count would be lost
                        await context.abort(
                            grpc.StatusCode.INVALID_ARGUMENT,
                            "request_headers must come once on a stream, got them again; open one for each "
                            "request",
                        )
                    begun = True
                    echo_request, echo_response = wants_bodies_back(request)
                    try:
                        flight, answer = self._picker.pick(request, context.peer())
                    except RefusedError as refused:
                        self._picker.refused[refused.status, refused.code] += 1
                        answer = refuse(refused)
                elif kind == "response_headers":
                    if flight is not None:
                        self._picker.response(flight, request.response_headers, request.metadata_context)
                    answer = GO_ON_RESPONSE_HEADERS
                elif kind is None:
                    continue  # a message of a newer Envoy
                else:
                    if flight is not None:
                        self._body(flight, request, kind)
                    answer = go_on(request, echo=echo_request if kind == "request_body" else echo_response)
                if not request.observability_mode:
                    await context.write(answer)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is no ProcessingRequest")
        finally:
            self.open_streams -= 1
            if flight is not None:
                self._picker.flights.over(flight, self._clock())

    def _body(self, flight: Flight, request: ProcessingRequest, kind: str) -> None:
        flight.in_body = flight.in_body or kind.startswith("response")
        if kind == "response_trailers" or (kind == "response_body" and request.response_body.end_of_stream):
            self._picker.flights.finished(flight)

    async def _log(self, messages: Any, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        log = object()
        self.open_logs += 1
        event(_logger, logging.DEBUG, "log_opened", f"an access log of Envoy's opened from {context.peer()}")
        try:
            async for data in messages:
                for entry in StreamAccessLogsMessage.FromString(data).http_logs.log_entry:
                    self._line(entry, log)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is no StreamAccessLogsMessage")
        finally:
            self.open_logs -= 1
            event(_logger, logging.DEBUG, "log_closed", f"the access log from {context.peer()} closed")
            self._picker.flights.log_closed(log, self._clock())
        return StreamAccessLogsResponse().SerializeToString()

    def _line(self, entry: HTTPAccessLogEntry, log: object) -> None:
        common = entry.common_properties
        if common.intermediate_log_entry or common.access_log_type not in _ENDS:
            return  # the request goes on
        metadata = common.metadata.filter_metadata
        mark = metadata[OWN_NAMESPACE].fields[MARK].string_value if OWN_NAMESPACE in metadata else ""
        self._picker.flights.line(mark, log)
