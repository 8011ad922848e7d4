"""mini-swe-agent's `.traj.json`: one file a task."""

from collections.abc import Iterator
from typing import Any

import msgspec

from coresched.trajectory.importers.clock import duration, gap, instant
from coresched.trajectory.importers.document import Document, Head, convert
from coresched.trajectory.importers.recording import Call, Malformed, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.importers.usage import Usage


class _Response(msgspec.Struct):
    model: str | None = None
    usage: Usage | None = None


class _Gated(msgspec.Struct):
    """What `coresched_miniswe` measured: a reply has the attempt that was answered, a command its job."""

    inference_s: float | None = None
    environment_s: float | None = None


class _Extra(msgspec.Struct):
    response: Any = None
    """The API's answer; a text where it could not be written as JSON."""
    timestamp: float | None = None
    actions: list[Any] | None = None
    coresched: _Gated | None = None


class _Message(msgspec.Struct):
    role: str | None = None
    """None in what the responses API answers, and in its tool outputs."""
    type: str | None = None
    object: str | None = None
    content: Any = None
    output: Any = None
    tool_calls: list[Any] | None = None
    usage: Usage | None = None
    model: str | None = None
    extra: _Extra | None = None


class _Trajectory(msgspec.Struct):
    messages: list[_Message]


class MiniSweAgent:
    """Version 2 stamps each reply and each observation; version 1 stamps nothing.

    A reply that could not be parsed stands in the answer the harness gave to it, and is a model call too. In
    a run under `coresched_miniswe` the time stamps have waits for slots between them, and the measured times,
    which have not, stand beside them.
    """

    name = "mini-swe-agent"
    files = ".traj.json of mini-swe-agent, a task each"
    tokens = "the provider's usage"
    inference = "derived from time stamps; the harness's retries and their back-off cannot be told from it"
    environment = "derived from time stamps, all calls of a stage together as they ran"

    def recognises(self, head: Head) -> bool:
        stated = head.get("trajectory_format")
        return isinstance(stated, str) and stated.startswith("mini-swe-agent")

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        return document.each(
            _Trajectory, lambda where, record: _sample(document.stem, where, record.messages, count)
        )


def _sample(name: str, where: str, messages: list[_Message], count: TokenCounter) -> Sample:
    sample = Sample(name, where, [])
    call: Call | None = None
    added = 0
    replied: float | None = None
    observed: float | None = None
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        extra = message.extra or _Extra()
        response = _response(message, extra, f"{place}.extra.response")
        stamp = instant(extra.timestamp)
        text = count.message([message.content, message.output, message.tool_calls])
        if message.role == "assistant" or message.object == "response" or response is not None:
            refused = message.role not in ("assistant", None)
            call = Call(added_text_tokens=added, reply_text_tokens=0 if refused else text, dropped=refused)
            if response is not None:
                sample.model = sample.model or response.model
                if response.usage is not None:
                    response.usage.fill(call)
            # The first call's start is not recorded: the prompt before it has no time stamp.
            call.infer_s = None if refused else gap(observed, stamp, f"{place} (reply)", sample.anomalies)
            if extra.coresched is not None and extra.coresched.inference_s is not None:
                call.infer_s = duration(extra.coresched.inference_s, f"{place} (reply)", sample.anomalies)
                sample.inference = "exact, of the attempt that was answered"
            replied, observed = None if refused else stamp, None
            sample.calls.append(call)
            added = text if refused else 0
            if not refused:
                calls = len(extra.actions) if extra.actions is not None else len(message.tool_calls or ())
                if extra.actions is None and not calls:
                    calls = 1  # version 1: each reply is one command
                call.stage = Stage(n_calls=calls, kind="bash") if calls else None
            continue
        added += text
        if extra.coresched is not None and extra.coresched.environment_s is not None:
            if call is not None and call.stage is not None:
                _add_command(call.stage, extra.coresched.environment_s, place, sample)
            observed = stamp
            continue
        if message.role == "exit" or stamp is None:
            continue
        observed = stamp
        if call is not None and call.stage is not None and call.stage.quality != "exact":
            call.stage.duration_s = gap(replied, stamp, f"{place} (observation)", sample.anomalies)
            call.stage.quality = "absent" if call.stage.duration_s is None else "derived"
    return sample


def _add_command(stage: Stage, seconds: float, place: str, sample: Sample) -> None:
    """The commands of a stage run one after the other."""
    measured = duration(seconds, f"{place} (command)", sample.anomalies)
    if measured is not None:
        before = stage.duration_s if stage.quality == "exact" else None
        stage.duration_s, stage.quality = round((before or 0.0) + measured, 6), "exact"
        sample.environment = "exact, without the wait for a slot"


def _response(message: _Message, extra: _Extra, place: str) -> _Response | None:
    if message.object == "response":
        return _Response(message.model, message.usage)
    if not isinstance(extra.response, dict):
        return None
    try:
        return convert(extra.response, _Response)
    except Malformed as error:
        raise Malformed(f"{place}.{error}") from None
