"""OpenTelemetry spans of the GenAI conventions, as OTLP JSON: one export, or an export a line."""

from collections.abc import Iterator
from typing import Any

import msgspec

from coresched.trajectory.importers.clock import busy_seconds, gap
from coresched.trajectory.importers.document import Document, Head, convert
from coresched.trajectory.importers.recording import Call, Malformed, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.importers.usage import tokens

_MODEL_CALLS = {"chat", "text_completion", "generate_content"}
_ERROR = {2, "2", "STATUS_CODE_ERROR"}


class _Value(msgspec.Struct):
    stringValue: str | None = None
    intValue: int | str | None = None
    doubleValue: float | None = None


class _Attribute(msgspec.Struct):
    key: str
    value: _Value | None = None


class _Status(msgspec.Struct):
    code: int | str | None = None


class _Span(msgspec.Struct):
    traceId: str
    spanId: str
    name: str = ""
    parentSpanId: str | None = None
    startTimeUnixNano: int | str | None = None
    endTimeUnixNano: int | str | None = None
    attributes: list[_Attribute] = []
    status: _Status | None = None
    where: str = ""
    """Its place in the file, once it is known."""

    def get(self, *keys: str) -> str | float | None:
        """The first of these attributes that there is."""
        for key in keys:
            for attribute in self.attributes:
                if attribute.key == key and attribute.value is not None:
                    value = attribute.value
                    return next(
                        (
                            found
                            for found in (value.stringValue, value.intValue, value.doubleValue)
                            if found is not None
                        ),
                        None,
                    )
        return None

    @property
    def operation(self) -> str:
        stated = self.get("gen_ai.operation.name")
        return str(stated) if stated is not None else self.name.partition(" ")[0]

    @property
    def start(self) -> float | None:
        return _seconds(self.startTimeUnixNano)

    @property
    def end(self) -> float | None:
        return _seconds(self.endTimeUnixNano)


class OtelGenAi:
    """A trajectory is the `chat` spans of one conversation, or else of one trace.

    `execute_tool` spans between two of them are the stage. A model call under a tool's span belongs to a
    sub-agent and is part of the tool's time. A span that ended in an error without output is no model call.
    """

    name = "otel"
    files = "OTLP JSON of OpenTelemetry GenAI spans"
    tokens = "gen_ai.usage of the provider"
    inference = "exact: chat spans; a client that retries inside one has its back-off in it"
    environment = "exact: execute_tool spans, calls at the same time counted once"

    def recognises(self, head: Head) -> bool:
        return "resourceSpans" in head

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        spans: dict[tuple[str, str], _Span] = {}
        for where, record in document.records(dict[str, Any]):
            if isinstance(record, Skipped):
                yield record
                continue
            for item in _spans(record, f"{where}, " if where else ""):
                if isinstance(item, Skipped):
                    yield item
                else:
                    spans[item.traceId, item.spanId] = item
        groups: dict[str, list[_Span]] = {}
        for span in sorted(spans.values(), key=lambda span: span.start or 0.0):
            conversation = _conversation(span, spans)
            if conversation is not None and (
                span.operation in _MODEL_CALLS or span.operation == "execute_tool"
            ):
                groups.setdefault(conversation, []).append(span)
        for name, members in groups.items():
            try:
                yield _sample(name, members)
            except Malformed as error:
                yield Skipped(members[0].where, str(error))


def _spans(record: dict[str, Any], prefix: str) -> Iterator[_Span | Skipped]:
    for path, scope in _nested(record, "resourceSpans", prefix):
        for inner, group in _nested(scope, "scopeSpans", f"{path}."):
            for place, value in _nested(group, "spans", f"{inner}."):
                try:
                    span = convert(value, _Span)
                except Malformed as error:
                    yield Skipped(place, str(error))
                    continue
                span.where = place
                yield span


def _nested(record: Any, key: str, prefix: str) -> Iterator[tuple[str, Any]]:
    values = record.get(key) if isinstance(record, dict) else None
    for number, value in enumerate(values if isinstance(values, list) else ()):
        yield f"{prefix}{key}[{number}]", value


def _conversation(span: _Span, spans: dict[tuple[str, str], _Span]) -> str | None:
    """The conversation of a span, or else its trace; None under a tool's span."""
    conversation = span.get("gen_ai.conversation.id")
    name = str(conversation) if conversation is not None else span.traceId
    passed = {span.spanId}
    parent = spans.get((span.traceId, span.parentSpanId or ""))
    while parent is not None and parent.spanId not in passed:
        if parent.operation == "execute_tool":
            return None
        passed.add(parent.spanId)
        parent = spans.get((span.traceId, parent.parentSpanId or ""))
    return name


def _sample(name: str, members: list[_Span]) -> Sample:
    sample = Sample(name, members[0].where, [])
    call: Call | None = None
    tools: list[_Span] = []
    for span in members:
        if span.operation == "execute_tool":
            if call is not None:
                tools.append(span)
                call.stage = _stage(tools, sample.anomalies)
            continue
        failed = span.get("error.type") is not None or (
            span.status is not None and span.status.code in _ERROR
        )
        prompt = _count(span, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
        output = _count(span, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
        if failed and not output:
            continue
        if not prompt or output is None:
            raise Malformed(
                f"chat span {span.spanId} has no gen_ai.usage.input_tokens and output_tokens; "
                "there is no text to count instead"
            )
        reasoning = _count(span, "gen_ai.usage.reasoning.output_tokens") or 0
        call = Call(
            prompt_tokens=prompt,
            output_tokens=output,
            reasoning_tokens=min(reasoning, output),
            infer_s=gap(span.start, span.end, f"span {span.spanId}", sample.anomalies),
        )
        model = span.get("gen_ai.response.model", "gen_ai.request.model")
        sample.model = sample.model or (None if model is None else str(model))
        sample.calls.append(call)
        tools = []
    return sample


def _stage(tools: list[_Span], anomalies: list[str]) -> Stage:
    names = {str(tool.get("gen_ai.tool.name") or tool.name.removeprefix("execute_tool ")) for tool in tools}
    kind = names.pop() if len(names) == 1 else "tools"
    latest: list[str] = []
    intervals = [
        (tool.start, tool.end)
        for tool in tools
        if tool.start is not None
        and tool.end is not None
        and gap(tool.start, tool.end, f"span {tool.spanId}", latest) is not None
    ]
    anomalies += [clause for clause in latest if clause not in anomalies]
    if len(intervals) < len(tools):
        return Stage(n_calls=len(tools), kind=kind)
    return Stage(busy_seconds(intervals), "exact", len(tools), kind)


def _count(span: _Span, *keys: str) -> int | None:
    value = span.get(*keys)
    try:
        return None if value is None else tokens(float(value))
    except ValueError:
        raise Malformed(
            f"span {span.spanId}: {keys[0]} is {str(value)[:40]!r}; it must be a number"
        ) from None


def _seconds(nanoseconds: int | str | None) -> float | None:
    """Unix seconds; a time of 0 is none. JSON carries 64-bit integers as text."""
    text = str(nanoseconds) if nanoseconds is not None else ""
    return int(text) / 1e9 if text.isascii() and text.isdigit() and len(text) < 20 and int(text) else None
