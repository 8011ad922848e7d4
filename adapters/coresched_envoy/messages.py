"""Envoy's messages of external processing: what is read of a request, and the answers to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from google.protobuf.struct_pb2 import Value

from coresched.gateway.refusal import RefusedError, error_body
from coresched_envoy.names import (
    DESTINATION,
    HINT_NAMESPACE,
    LB_NAMESPACE,
    MARK,
    OWN_NAMESPACE,
    SERVED,
    SUBSET,
)
from coresched_envoy.wire_pb2 import (
    FULL_DUPLEX_STREAMED,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpBody,
    HttpHeaders,
    ImmediateResponse,
    Metadata,
    ProcessingRequest,
    ProcessingResponse,
    TrailersResponse,
)

_OVERWRITE: Final = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD

GO_ON_RESPONSE_HEADERS: Final = ProcessingResponse(response_headers=HeadersResponse()).SerializeToString()


def header_values(headers: HttpHeaders, names: Collection[str]) -> dict[str, list[str]]:
    """The values of the headers of these names, which are in lower case, as Envoy has them all."""
    found: dict[str, list[str]] = {}
    for header in headers.headers.headers:
        key = header.key
        if key in names:
            raw = header.raw_value
            found.setdefault(key, []).append(raw.decode("utf-8", "surrogateescape") if raw else header.value)
    return found


def has_length(headers: HttpHeaders) -> bool:
    """Whether the body's end is near: it has a length, or there is none."""
    return headers.end_of_stream or any(header.key == "content-length" for header in headers.headers.headers)


def subset_of(metadata: Metadata, headers: Mapping[str, Sequence[str]]) -> list[str] | None:
    """The endpoints that a request has to go to one of, by its metadata, else by its header; None for any."""
    hint = _field(metadata, HINT_NAMESPACE, SUBSET)
    if hint is not None:
        values = (
            [value.string_value for value in hint.list_value.values]
            if hint.WhichOneof("kind") == "list_value"
            else hint.string_value.split(",")
        )
    elif SUBSET in headers:
        values = ",".join(headers[SUBSET]).split(",")
    else:
        return None
    return [text for value in values if (text := value.strip())]


def served_by(metadata: Metadata) -> str | None:
    """The endpoint that took the request, if Envoy says so."""
    value = _field(metadata, LB_NAMESPACE, SERVED)
    return None if value is None else value.string_value or None


def _field(metadata: Metadata, namespace: str, name: str) -> Value | None:
    if namespace not in metadata.filter_metadata:  # looking it up would add it
        return None
    fields = metadata.filter_metadata[namespace].fields
    return fields.get(name)


def go_to(endpoints: Sequence[str], mark: str) -> bytes:
    """Where the request shall go, the best first, and its mark for the access log."""
    answer = ProcessingResponse()
    destination = ",".join(endpoints)
    option = answer.request_headers.response.header_mutation.set_headers.add()
    option.append_action = _OVERWRITE
    option.header.key = DESTINATION
    option.header.raw_value = destination.encode()
    namespaces = answer.dynamic_metadata.fields
    namespaces[LB_NAMESPACE].struct_value.fields[DESTINATION].string_value = destination
    namespaces[OWN_NAMESPACE].struct_value.fields[MARK].string_value = mark
    return answer.SerializeToString()


def refuse(refused: RefusedError) -> bytes:
    """Envoy answers the client with this, in the form of the gateway's errors."""
    headers = {"content-type": "application/json"}
    if refused.retry_after_s is not None:
        headers["retry-after"] = str(refused.retry_after_s)
    response = ImmediateResponse(
        headers=HeaderMutation(
            set_headers=[
                HeaderValueOption(
                    header=HeaderValue(key=key, raw_value=value.encode()), append_action=_OVERWRITE
                )
                for key, value in headers.items()
            ]
        ),
        body=error_body(refused),
        details=f"coresched_{refused.code}",
    )
    response.status.code = refused.status
    return ProcessingResponse(immediate_response=response).SerializeToString()


def go_on(request: ProcessingRequest, *, echo: bool) -> bytes:
    """For a body or trailers that we did not ask for; `echo`: Envoy wants each piece of a body back."""
    kind = request.WhichOneof("request")
    answer = ProcessingResponse()
    if kind == "request_body":
        answer.request_body.CopyFrom(_body(request.request_body, echo))
    elif kind == "response_body":
        answer.response_body.CopyFrom(_body(request.response_body, echo))
    elif kind == "request_trailers":
        answer.request_trailers.CopyFrom(TrailersResponse())
    else:
        answer.response_trailers.CopyFrom(TrailersResponse())
    return answer.SerializeToString()


def _body(body: HttpBody, echo: bool) -> BodyResponse:
    answer = BodyResponse(response=CommonResponse())
    if echo:
        streamed = answer.response.body_mutation.streamed_response
        streamed.body = body.body
        streamed.end_of_stream = body.end_of_stream
    return answer


def wants_bodies_back(request: ProcessingRequest) -> tuple[bool, bool]:
    """Whether Envoy wants back each piece of the request's body, and of the response's."""
    protocol = request.protocol_config
    return (
        protocol.request_body_mode == FULL_DUPLEX_STREAMED,
        protocol.response_body_mode == FULL_DUPLEX_STREAMED,
    )
