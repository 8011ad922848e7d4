"""tau2-bench's results: one file a run with all simulations, or one file a simulation."""

from collections.abc import Iterator
from typing import Any

import msgspec

from coresched.trajectory.importers.clock import duration, gap, instant
from coresched.trajectory.importers.document import Document, Head, convert
from coresched.trajectory.importers.recording import Call, Malformed, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.importers.usage import Usage


class _Message(msgspec.Struct):
    role: str
    content: Any = None
    tool_calls: list[Any] | None = None
    usage: Usage | None = None
    generation_time_seconds: float | None = None
    timestamp: Any = None


class _Simulation(msgspec.Struct):
    task_id: str | int
    messages: list[_Message]
    trial: int | None = None


class Tau2:
    """The agent's calls; tools, the simulated user and the user's own tools are its environment.

    What the assistant says without usage, while other replies have one, is scripted (its greeting).
    """

    name = "tau2"
    files = "results.json of tau2-bench, or one simulation"
    tokens = "the provider's usage"
    inference = "exact: generation_time_seconds, in which litellm's own retries are"
    environment = "derived from time stamps; of kind user: the simulated user's replies and tools"

    def recognises(self, head: Head) -> bool:
        return head.get("simulations") is list or (
            head.get("messages") is list and "task_id" in head and "termination_reason" in head
        )

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        for where, record in document.records(dict[str, Any]):
            if isinstance(record, Skipped):
                yield record
                continue
            several = record.get("simulations", [record])
            if not isinstance(several, list):
                yield Skipped(where, "simulations: expected array")
                continue
            for number, simulation in enumerate(several):
                place = f"simulations[{number}]" if "simulations" in record else ""
                place = ", ".join(part for part in (where, place) if part)
                try:
                    yield _sample(place, convert(simulation, _Simulation), count)
                except Malformed as error:
                    yield Skipped(place, str(error))


def _sample(where: str, record: _Simulation, count: TokenCounter) -> Sample:
    trial = "" if record.trial is None else f"_trial_{record.trial}"
    sample = Sample(f"{record.task_id}{trial}", where, [])
    metered = any(message.role == "assistant" and message.usage for message in record.messages)
    added = 0
    heard = False
    call: Call | None = None
    replied: float | None = None
    for number, message in enumerate(record.messages):
        place = f"messages[{number}]"
        text = count.message([message.content, message.tool_calls])
        stamp = instant(message.timestamp)
        if message.role == "assistant" and (message.usage is not None if metered else heard):
            call = Call(added_text_tokens=added, reply_text_tokens=text)
            if message.usage is not None:
                message.usage.fill(call)
            seconds = message.generation_time_seconds
            call.infer_s = duration(seconds, f"{place}.generation_time_seconds", sample.anomalies)
            if message.tool_calls:
                call.stage = Stage(n_calls=len(message.tool_calls), kind="tool")
            sample.calls.append(call)
            replied, added = stamp, 0
            continue
        heard = heard or message.role == "user"
        added += text
        if call is not None and message.role in ("user", "tool"):
            call.stage = call.stage or Stage(kind="user")
            # The last message before the next call ends the stage; an earlier one's time is overwritten.
            call.stage.duration_s = gap(replied, stamp, place, sample.anomalies)
            call.stage.quality = "absent" if call.stage.duration_s is None else "derived"
    return sample
