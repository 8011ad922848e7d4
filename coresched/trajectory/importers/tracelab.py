"""TraceLab's normalised rounds of Claude Code and Codex sessions: a line a model call."""

from collections.abc import Iterator
from typing import Any

import msgspec

from coresched.trajectory.importers.clock import busy_seconds, duration, gap, instant
from coresched.trajectory.importers.document import Document, Head
from coresched.trajectory.importers.recording import Call, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.importers.usage import tokens

_INPUT_EVENTS = {"user_message", "tool_result"}
_OUTPUT_EVENTS = {"reasoning", "text", "tool_call"}


class _Event(msgspec.Struct):
    event_type: str | None = None
    timestamp: Any = None


class _Tool(msgspec.Struct):
    tool_name: str | None = None
    emitted_at: Any = None
    result_at: Any = None
    tool_wall_latency_ms: float | None = None
    tool_internal_latency_ms: float | None = None


class _Round(msgspec.Struct):
    session_id: str
    round_index: int
    input_tokens_total: float
    output_tokens: float
    reasoning_output_tokens: float | None = None
    provider: str | None = None
    model: str | None = None
    timing_events: list[_Event] = []
    tools: list[_Tool] = []


class TraceLab:
    """A trajectory is a session; the time until a person's next message is no stage's duration.

    A tool's own report of its duration goes before the log's, in which the wait for a person's approval is.
    """

    name = "tracelab"
    files = "normalised rounds of TraceLab, JSON lines"
    tokens = "the provider's usage"
    inference = "derived from the session log: the last input to the last output of a round"
    environment = "derived from the session log; where the tool reports its duration, that"

    def recognises(self, head: Head) -> bool:
        return {"session_id", "round_index", "input_tokens_total"} <= head.keys()

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        sessions: dict[str, list[tuple[int, str, Call, bool]]] = {}
        anomalies: dict[str, list[str]] = {}
        models: dict[str, str | None] = {}
        for where, record in document.records(_Round):
            if isinstance(record, Skipped):
                yield record
                continue
            prompt, output = tokens(record.input_tokens_total), tokens(record.output_tokens)
            if not prompt or output is None:
                counts = f"{record.input_tokens_total:g} and {record.output_tokens:g}"
                yield Skipped(
                    where, f"input_tokens_total and output_tokens are {counts}; no model call has that"
                )
                continue
            session = record.session_id
            clauses = anomalies.setdefault(session, [])
            call = Call(prompt, output)
            call.reasoning_tokens = min(tokens(record.reasoning_output_tokens) or 0, output)
            call.infer_s = _inference(record, f"{where} (model call)", clauses)
            call.stage = _stage(record.tools, f"{where}, tools", clauses)
            asked = bool(record.timing_events) and record.timing_events[0].event_type == "user_message"
            sessions.setdefault(session, []).append((record.round_index, where, call, asked))
            models.setdefault(session, record.model)
        for session, rounds in sessions.items():
            rounds.sort(key=lambda item: item[0])
            calls = [call for _, _, call, _ in rounds]
            for before, (_, _, _, asked) in zip(calls, rounds[1:], strict=False):
                if asked and before.stage is None:
                    before.stage = Stage(n_calls=0, kind="user")
            yield Sample(session, rounds[0][1], calls, models[session], anomalies[session])


def _inference(record: _Round, what: str, anomalies: list[str]) -> float | None:
    begun: float | None = None
    ended: float | None = None
    for event in record.timing_events:
        at = instant(event.timestamp)
        if at is not None and event.event_type in _INPUT_EVENTS and ended is None:
            begun = at
        elif at is not None and event.event_type in _OUTPUT_EVENTS:
            ended = at
    return gap(begun, ended, what, anomalies)


def _stage(tools: list[_Tool], what: str, anomalies: list[str]) -> Stage | None:
    if not tools:
        return None
    names = {tool.tool_name for tool in tools}
    kind = names.pop() if len(names) == 1 else "tools"
    spent = [
        duration(None if stated is None else stated / 1000, what, anomalies)
        for tool in tools
        for stated in (
            tool.tool_wall_latency_ms
            if tool.tool_internal_latency_ms is None
            else tool.tool_internal_latency_ms,
        )
    ]
    seconds = [value for value in spent if value is not None]
    if len(seconds) < len(tools):
        return Stage(n_calls=len(tools), kind=kind)
    starts = [instant(tool.emitted_at) for tool in tools]
    known = [
        (start, start + value) for start, value in zip(starts, seconds, strict=True) if start is not None
    ]
    # Without the starts, calls of one reply are taken as running at the same time.
    busy = busy_seconds(known) if len(known) == len(tools) else max(seconds)
    internal = all(tool.tool_internal_latency_ms is not None for tool in tools)
    return Stage(busy, "exact" if internal else "derived", len(tools), kind)
