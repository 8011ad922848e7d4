"""inspect-ai's logs: `.eval` archives with a member a sample, and `.json` logs with all of them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from coresched.trajectory.importers.clock import busy_seconds, duration, gap, instant
from coresched.trajectory.importers.document import Document, Head, convert, decode
from coresched.trajectory.importers.recording import Call, Malformed, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.importers.unpacking import Archive, opened_archive
from coresched.trajectory.importers.usage import tokens


class _Usage(msgspec.Struct):
    input_tokens: float = 0
    output_tokens: float = 0
    total_tokens: float = 0
    input_tokens_cache_write: float | None = None
    input_tokens_cache_read: float | None = None
    reasoning_tokens: float | None = None


class _Output(msgspec.Struct):
    usage: _Usage | None = None
    time: float | None = None
    choices: list[Any] = []
    error: str | None = None


class _Event(msgspec.Struct):
    """What events of every kind have; the rest differs in type from kind to kind."""

    event: str = ""
    timestamp: Any = None
    completed: Any = None
    working_time: float | None = None
    span_id: str | None = None
    pending: bool | None = None
    error: Any = None


class _Span(_Event):
    id: str | None = None
    parent_id: str | None = None
    type: str | None = None


class _ModelCall(_Event):
    model: str | None = None
    cache: str | None = None
    retries: int | None = None
    output: _Output | None = None


class _ToolCall(_Event):
    function: str | None = None
    result: Any = None


class _Step(_Event):
    """What marked a scorer before there were spans."""

    action: str | None = None
    type: str | None = None


_KINDS: dict[str, type[_Event]] = {"span_begin": _Span, "step": _Step, "model": _ModelCall, "tool": _ToolCall}


class _Transcript(msgspec.Struct):
    events: list[Any] = []


class _Sample(msgspec.Struct):
    id: str | int
    epoch: int = 1
    input: Any = None
    events: list[Any] = []
    transcript: _Transcript | None = None
    """Where the events of logs of 2024 are."""


class _Log(msgspec.Struct):
    samples: list[Any] | None = None


@dataclass
class _Tool:
    start: float
    end: float
    """When it would have ended had it not waited for a slot of the harness."""
    until: float
    """When it ended."""
    function: str | None


class InspectLog:
    """A model call's time is that of the attempt that answered; a tool's is its working time, without waits.

    Calls that failed are none, nor are those of scorers. What a tool asks of a model itself (a sub-agent) is
    part of the tool's time.
    """

    name = "inspect"
    files = ".eval and .json logs of inspect-ai"
    tokens = "the provider's usage"
    inference = "exact: the attempt that answered, without retries, back-off and the wait for a connection"
    environment = "exact: working time of the tools, calls at the same time counted once"

    def recognises(self, head: Head) -> bool:
        return head.get("eval") is dict and ("samples" in head or "status" in head)

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        if document.kind != "zip":
            for where, log in document.records(_Log):
                if isinstance(log, Skipped):
                    yield log
                    continue
                prefix = f"{where}, " if where else ""
                for number, record in enumerate(log.samples or ()):
                    yield _imported(f"{prefix}samples[{number}]", partial(convert, record, _Sample), count)
            return
        with opened_archive(document.path) as archive:
            names = sorted(name for name in archive.names() if re.fullmatch(r"samples/[^/]+\.json", name))
            if not names:
                raise Malformed(
                    "the archive has no samples/*.json: no log of inspect, or one whose run had no sample"
                )
            for name in names:
                yield _imported(name, partial(_member, archive, name), count)


def _member(archive: Archive, name: str) -> _Sample:
    return decode(archive.read(name), _Sample)


def _imported(where: str, read: Callable[[], _Sample], count: TokenCounter) -> Sample | Skipped:
    try:
        record = read()
        # As inspect itself names the member of a sample.
        sample = Sample(f"{record.id}_epoch_{record.epoch}", where, [])
        _follow(record, sample, count)
    except Malformed as error:
        return Skipped(where, str(error))
    return sample


def _follow(record: _Sample, sample: Sample, count: TokenCounter) -> None:
    scorers: set[str | None] = set()
    scoring = False
    call: Call | None = None
    tools: list[_Tool] = []
    n_calls = 0
    within: tuple[float, float] | None = None  # a sub-agent at work: from its first call to its tool's end
    added = count.message(record.input)
    for number, event in enumerate(_events(record)):
        place = f"events[{number}]"
        if isinstance(event, _Span) and (event.type == "scorers" or event.parent_id in scorers):
            scorers.add(event.id)
        if isinstance(event, _Step) and event.type == "scorer":
            scoring = event.action == "begin"
        if scoring or event.pending or (event.span_id is not None and event.span_id in scorers):
            continue
        start = instant(event.timestamp)
        if start is not None and within is not None and within[0] <= start < within[1]:
            continue
        if isinstance(event, _ToolCall) and call is not None:
            n_calls += 1
            end = _end(event, start, place, sample.anomalies)
            added += count.message(event.result)
            if start is not None and end is not None:
                tools.append(_Tool(start, end, max(instant(event.completed) or end, end), event.function))
            call.stage = _stage(tools, n_calls, event.function)
        elif isinstance(event, _ModelCall) and event.error is None and event.output is not None:
            if not event.output.choices and event.output.usage is None:
                continue
            ends = [tool.until for tool in tools if start is not None and tool.start <= start < tool.until]
            if start is not None and ends:
                within = start, max(ends)  # a tool asked; the time is the tool's
                continue
            call = _call(event, event.output, place, sample.anomalies, count)
            call.added_text_tokens, added = added, 0
            sample.model = sample.model or event.model
            sample.calls.append(call)
            tools, n_calls = [], 0


def _events(record: _Sample) -> Iterator[_Event]:
    events = record.events or (record.transcript.events if record.transcript else [])
    for number, event in enumerate(events):
        kind = _KINDS.get(str(event.get("event"))) if isinstance(event, dict) else None
        try:
            yield convert(event, kind) if kind is not None else _Event()
        except Malformed as error:
            raise Malformed(f"events[{number}].{error}") from None


def _call(event: _ModelCall, output: _Output, place: str, anomalies: list[str], count: TokenCounter) -> Call:
    call = Call(reply_text_tokens=count.message(output.choices))
    if output.usage is not None:
        _fill(call, output.usage)
    if event.cache != "read":  # from inspect's own cache of answers: no model ran
        seconds = event.working_time if output.time is None else output.time
        if seconds is None and not event.retries:
            start, end = instant(event.timestamp), instant(event.completed)
            seconds = None if start is None or end is None else end - start
        call.infer_s = duration(seconds, f"{place} (model call)", anomalies)
    return call


def _fill(call: Call, usage: _Usage) -> None:
    output = tokens(usage.output_tokens)
    # The total is right for every provider and release; whether input_tokens has the cached ones differs.
    prompt = tokens(usage.total_tokens - usage.output_tokens)
    stated = tokens(usage.input_tokens)
    if prompt is None or prompt < (stated or 0):
        prompt = (
            (stated or 0)
            + (tokens(usage.input_tokens_cache_read) or 0)
            + (tokens(usage.input_tokens_cache_write) or 0)
        )
    if prompt and output is not None:
        call.prompt_tokens, call.output_tokens = prompt, output
        call.reasoning_tokens = min(tokens(usage.reasoning_tokens) or 0, output)


def _end(event: _Event, start: float | None, place: str, anomalies: list[str]) -> float | None:
    if start is None:
        return None
    seconds = duration(event.working_time, f"{place} (tool call)", anomalies)
    if seconds is None:
        seconds = gap(start, instant(event.completed), f"{place} (tool call)", anomalies)
    return None if seconds is None else start + seconds


def _stage(tools: list[_Tool], n_calls: int, function: str | None) -> Stage:
    names = {tool.function for tool in tools} | {function}
    kind = function if len(names) == 1 else "tools"
    if len(tools) < n_calls:  # the duration of one of them is not recorded, so that of the stage is not
        return Stage(n_calls=n_calls, kind=kind)
    return Stage(busy_seconds((tool.start, tool.end) for tool in tools), "exact", n_calls, kind)
