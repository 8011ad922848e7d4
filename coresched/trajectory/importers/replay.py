"""The events of `coresched replay`: what was replayed becomes a trace again, with the times it took."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from coresched.trajectory.importers.clock import duration, gap
from coresched.trajectory.importers.document import Document, Head
from coresched.trajectory.importers.recording import Call, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.refusal import shown


class _Event(msgspec.Struct):
    event: str
    sample: str
    turn: int | None = None
    sent_s: float | None = None
    ended_s: float | None = None
    duration_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None


@dataclass
class _Recorded:
    where: str
    calls: dict[int, Call] = field(default_factory=dict)
    stages: dict[int, Stage] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)
    completed: bool = False


class Replay:
    """A trajectory is a sample that completed. A stage is the pause that was asked for: by how much it came
    out late, and the wait for its slot, are not in it, so that a replay of a replay is the same once more.

    A request that failed is no model call; the one that was sent in its place is.
    """

    name = "replay"
    files = "the folder of a `coresched replay`, or its events"
    tokens = "the engine's usage"
    inference = "exact: from sending the request that was answered to the end of its answer"
    environment = "exact: as replayed, without the wait for a slot"

    def recognises(self, head: Head) -> bool:
        return {"event", "sample"} <= head.keys()

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        samples: dict[str, _Recorded] = {}
        for where, event in document.records(_Event):
            if isinstance(event, Skipped):
                yield event
                continue
            sample = samples.setdefault(event.sample, _Recorded(where))
            if event.event == "completion":
                sample.completed = True
            if event.event not in ("inference", "environment"):
                continue
            if event.turn is None:
                yield Skipped(where, "object missing required field turn")
                continue
            if event.event == "inference":
                if not event.prompt_tokens or event.output_tokens is None:
                    yield Skipped(
                        where, "prompt_tokens and output_tokens are needed; there is no text to count"
                    )
                    continue
                seconds = gap(event.sent_s, event.ended_s, where, sample.anomalies)
                sample.calls[event.turn] = Call(event.prompt_tokens, event.output_tokens, infer_s=seconds)
            else:
                seconds = duration(event.duration_s, where, sample.anomalies)
                sample.stages[event.turn] = Stage(seconds, "absent" if seconds is None else "exact")
        for name, sample in samples.items():
            if not sample.completed or sorted(sample.calls) != list(range(len(sample.calls))):
                why = "a turn is missing" if sample.completed else "it did not complete in this replay"
                yield Skipped(sample.where, f"sample {shown(name)}: {why}")
                continue
            for turn, call in sample.calls.items():
                call.stage = sample.stages.get(turn)
            calls = [sample.calls[turn] for turn in sorted(sample.calls)]
            yield Sample(name, sample.where, calls, anomalies=sample.anomalies)
