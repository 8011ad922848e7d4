"""BFCL's result files: a line a test entry, with token counts and latency of each step."""

from collections.abc import Iterator
from typing import Any

import msgspec

from coresched.trajectory.importers.clock import duration
from coresched.trajectory.importers.document import Document, Head
from coresched.trajectory.importers.recording import Call, Malformed, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.importers.usage import tokens


class _Entry(msgspec.Struct):
    id: str
    result: Any
    input_token_count: Any = None
    output_token_count: Any = None
    latency: Any = None


class Bfcl:
    """A single-turn entry is one model call; of a multi-turn one each step is, with the tools it called.

    The user's messages are part of the test, so the step that ends a turn is followed by no job.
    """

    name = "bfcl"
    files = "result files of BFCL"
    tokens = "the provider's usage"
    inference = "exact: latency of the attempt that answered"
    environment = "absent"

    def recognises(self, head: Head) -> bool:
        return {"id", "result"} <= head.keys() and bool({"input_token_count", "latency"} & head.keys())

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        return document.each(_Entry, _sample)


def _sample(where: str, entry: _Entry) -> Sample:
    sample = Sample(entry.id, where, [])
    prompts = _turns(entry.input_token_count, "input_token_count")
    outputs = _turns(entry.output_token_count, "output_token_count")
    latencies = _turns(entry.latency, "latency") if entry.latency is not None else None
    shape = [len(turn) for turn in prompts]
    if [len(turn) for turn in outputs] != shape or (
        latencies is not None and [len(turn) for turn in latencies] != shape
    ):
        raise Malformed("input_token_count, output_token_count and latency differ in their turns and steps")
    for turn, steps in enumerate(prompts):
        for step, stated in enumerate(steps):
            place = f"input_token_count[{turn}][{step}]"
            prompt, output = tokens(stated), tokens(outputs[turn][step])
            if not prompt or output is None:
                counts = f"{stated} and {outputs[turn][step]}"
                raise Malformed(f"{place} and its output are {counts}; there is no text to count instead")
            seconds = None if latencies is None else latencies[turn][step]
            call = Call(
                prompt, output, infer_s=duration(seconds, f"latency[{turn}][{step}]", sample.anomalies)
            )
            if step + 1 < len(steps):
                call.stage = Stage(n_calls=_calls(entry.result, turn, step), kind="tool")
            sample.calls.append(call)
    return sample


def _turns(value: Any, field: str) -> list[list[float | None]]:
    """The steps of each turn; a single-turn entry has a number."""
    turns = value if isinstance(value, list) else [[value]]
    try:
        return msgspec.convert(turns, list[list[float | None]])
    except msgspec.ValidationError as error:
        raise Malformed(f"{field}: {str(error)[0].lower()}{str(error)[1:].replace('`', '')}") from None


def _calls(result: Any, turn: int, step: int) -> int:
    try:
        made = result[turn][step]
    except (TypeError, IndexError, KeyError):
        return 1
    return max(len(made), 1) if isinstance(made, list) else 1
