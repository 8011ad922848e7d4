"""SWE-agent's `.traj`: one file an instance, with the text of each step and how long its action ran."""

from collections.abc import Iterator
from typing import Any

import msgspec

from coresched.trajectory.importers.clock import duration
from coresched.trajectory.importers.document import Document, Head
from coresched.trajectory.importers.recording import Call, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.schema import DurationQuality


class _Step(msgspec.Struct):
    action: str | None = None
    observation: Any = None
    response: str | None = None
    execution_time: float | None = None


class _Message(msgspec.Struct):
    role: str | None = None
    content: Any = None
    is_demo: bool | None = None
    tool_calls: Any = None


class _Trajectory(msgspec.Struct):
    trajectory: list[_Step]
    history: list[_Message] = []


class SweAgent:
    """Tokens are stated in sum only, so each step's are counted on its text.

    What a history processor hides from later prompts is not told, so these come out too long where one runs.
    """

    name = "swe-agent"
    files = ".traj of SWE-agent, an instance each"
    tokens = "the provider's usage"
    inference = "absent"
    environment = "exact: execution_time, from sending the action to its output"

    def recognises(self, head: Head) -> bool:
        return head.get("trajectory") is list and ("history" in head or "info" in head)

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        return document.each(_Trajectory, lambda where, record: _sample(document.stem, where, record, count))


def _sample(stem: str, where: str, record: _Trajectory, count: TokenCounter) -> Sample:
    sample = Sample(stem, where, [])
    added = 0
    for message in record.history:
        if message.role == "assistant" and not message.is_demo:
            break
        added += count.message([message.content, message.tool_calls])
    for number, step in enumerate(record.trajectory):
        action, response = (step.action or "").strip(), step.response or ""
        if not response and (not action or action.startswith("exit")):
            continue  # the harness's own step: it submits for a model that ran out of its budget
        ran = bool(action)
        place = f"trajectory[{number}].execution_time"
        seconds = duration(step.execution_time, place, sample.anomalies) if ran else None
        quality: DurationQuality = "absent" if seconds is None else "exact"
        sample.calls.append(
            Call(
                added_text_tokens=added,
                # With function calls the action is not in the response's text.
                reply_text_tokens=count.message([response] if action in response else [response, action]),
                stage=Stage(seconds, quality, kind="bash") if ran else None,
            )
        )
        added = count.message(step.observation)
    return sample
