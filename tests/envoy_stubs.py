"""Our subset of Envoy's messages beside Envoy's own stubs, in one process; prints what differs, as JSON.

Run by a Python that has xds-protos, with the checkout's adapters on its path.
"""

from __future__ import annotations

import json
from typing import Any

import coresched_envoy.wire_pb2 as ours
from envoy.config.core.v3 import base_pb2 as core
from envoy.data.accesslog.v3 import accesslog_pb2 as line
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2 as mode
from envoy.service.accesslog.v3 import als_pb2 as log
from envoy.service.ext_proc.v3 import external_processor_pb2 as processor
from envoy.type.v3 import http_status_pb2 as status

MODULES = (processor, core, line, log, status)
VARINTS = (5, 8, 14)  # int32, bool, enum


def theirs(name: str) -> Any:
    (found,) = [getattr(module, name) for module in MODULES if hasattr(module, name)]
    return found.DESCRIPTOR


def kind(field: Any) -> object:
    """How the field looks on the wire."""
    return "varint" if field.type in VARINTS else field.type


def differences(mine: Any, its: Any) -> list[str]:
    found = []
    for field in mine.fields:
        other = its.fields_by_name.get(field.name)
        if other is None or (other.number, kind(other), other.is_repeated) != (
            field.number,
            kind(field),
            field.is_repeated,
        ):
            found.append(f"{mine.name}.{field.name}")
        elif field.message_type is not None and other.message_type.name != field.message_type.name:
            found.append(f"{mine.name}.{field.name}: {other.message_type.name}")
    for nested in mine.nested_types:
        if not nested.GetOptions().map_entry:
            found += differences(nested, its.nested_types_by_name[nested.name])
    for enum in mine.enum_types:
        found += different_values(enum, its.enum_types_by_name[enum.name])
    return found


def different_values(mine: Any, its: Any) -> list[str]:
    numbers = {value.name: value.number for value in its.values}
    return [f"{mine.name}.{one.name}" for one in mine.values if numbers.get(one.name) != one.number]


def main() -> None:
    found = []
    for name, mine in ours.DESCRIPTOR.message_types_by_name.items():
        found += differences(mine, theirs(name))
    found += different_values(
        ours.DESCRIPTOR.enum_types_by_name["BodySendMode"], mode.ProcessingMode.BodySendMode.DESCRIPTOR
    )
    found += different_values(
        ours.DESCRIPTOR.enum_types_by_name["AccessLogType"],
        line.DESCRIPTOR.enum_types_by_name["AccessLogType"],
    )

    request = processor.ProcessingRequest()
    request.request_headers.headers.headers.add(key="x-session-id", raw_value=b"a")
    request.request_headers.attributes["envoy"].fields["unread"].bool_value = True
    request.metadata_context.filter_metadata["envoy.lb.subset_hint"].fields["k"].list_value.extend(["a:1"])
    request.protocol_config.response_body_mode = mode.ProcessingMode.FULL_DUPLEX_STREAMED
    read = ours.ProcessingRequest.FromString(request.SerializeToString())
    again = processor.ProcessingRequest.FromString(read.SerializeToString())

    refusal = ours.ProcessingResponse()
    refusal.immediate_response.status.code = 429
    refusal.immediate_response.body = b"{}"
    refused = processor.ProcessingResponse.FromString(refusal.SerializeToString())

    message = log.StreamAccessLogsMessage()
    message.identifier.log_name = "unread"
    common = message.http_logs.log_entry.add().common_properties
    common.metadata.filter_metadata["coresched"].fields["mark"].string_value = "m"
    common.access_log_type = line.DownstreamEnd
    entry = ours.StreamAccessLogsMessage.FromString(message.SerializeToString()).http_logs.log_entry[0]
    own = entry.common_properties.metadata.filter_metadata["coresched"]
    print(
        json.dumps(
            {
                "messages": len(ours.DESCRIPTOR.message_types_by_name),
                "differ": found,
                "header": read.request_headers.headers.headers[0].raw_value.decode(),
                "unread_is_kept": again == request,
                "refused": [refused.immediate_response.status.code, refused.immediate_response.body.decode()],
                "mark": own.fields["mark"].string_value,
                "ends": entry.common_properties.access_log_type == ours.DownstreamEnd,
            }
        )
    )


if __name__ == "__main__":
    main()
