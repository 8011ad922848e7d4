"""ATIF, the agent trajectory interchange format that Harbor writes."""

from collections.abc import Iterator
from typing import Any

import msgspec

from coresched.trajectory.importers.document import Document, Head
from coresched.trajectory.importers.recording import Call, Malformed, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.importers.usage import tokens


class _Metrics(msgspec.Struct):
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    prompt_token_ids: list[Any] | None = None
    completion_token_ids: list[Any] | None = None
    extra: Any = None


class _Step(msgspec.Struct):
    source: str
    message: Any = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None
    observation: Any = None
    metrics: _Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None


class _Agent(msgspec.Struct):
    model_name: str | None = None
    tool_definitions: Any = None


class _Trajectory(msgspec.Struct):
    steps: list[_Step]
    agent: _Agent | None = None
    session_id: str | None = None
    trajectory_id: str | None = None


class Atif:
    """Agent steps are model calls. A step has one time stamp, which splits nothing: durations are absent.

    Steps copied from an earlier context or without a model call are none; metrics summed over several calls
    are no prompt's length, so such a step's tokens are counted on its text. Sub-agents are left out.
    """

    name = "atif"
    files = "trajectory.json of Harbor (ATIF)"
    tokens = "the provider's usage"
    inference = "absent"
    environment = "absent"

    def recognises(self, head: Head) -> bool:
        version = head.get("schema_version")
        return isinstance(version, str) and version.startswith("ATIF")

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        return document.each(_Trajectory, lambda where, record: _sample(document.stem, where, record, count))


def _sample(stem: str, where: str, record: _Trajectory, count: TokenCounter) -> Sample:
    agent = record.agent or _Agent()
    name = record.trajectory_id or record.session_id or stem
    sample = Sample(name, where, [], agent.model_name)
    added = count.message(agent.tool_definitions)
    for step in record.steps:
        said = count.message([step.message, step.tool_calls])
        seen = _observed(step.observation, count)
        if step.source != "agent" or step.is_copied_context or step.llm_call_count == 0:
            added += said + seen
            continue
        reasoning = count.message(step.reasoning_content)
        call = Call(added_text_tokens=added, reply_text_tokens=said + reasoning, reasoning_tokens=reasoning)
        if step.metrics is not None and (step.llm_call_count or 1) == 1:
            _fill(call, step.metrics)
        if step.tool_calls or step.observation is not None:
            call.stage = Stage(n_calls=len(step.tool_calls or ()) or 1, kind="tool")
        sample.calls.append(call)
        added = seen
    return sample


def _fill(call: Call, metrics: _Metrics) -> None:
    prompt = tokens(metrics.prompt_tokens) or len(metrics.prompt_token_ids or ())
    output = tokens(metrics.completion_tokens)
    if output is None and metrics.completion_token_ids is not None:
        output = len(metrics.completion_token_ids)
    if prompt and output is not None:
        call.prompt_tokens, call.output_tokens = prompt, output
        call.reasoning_tokens = min(_reasoning(metrics.extra), output)


def _reasoning(extra: Any) -> int:
    """Reasoning tokens, under the names that Harbor's agents give them in what the format leaves open."""
    if not isinstance(extra, dict):
        return 0
    details = extra.get("completion_tokens_details")
    places = (details if isinstance(details, dict) else {}, extra)
    for place in places:
        for key in ("reasoning_tokens", "reasoning_output_tokens"):
            value = place.get(key)
            if isinstance(value, int | float):
                return tokens(value) or 0
    return 0


def _observed(observation: Any, count: TokenCounter) -> int:
    if not isinstance(observation, dict):
        return 0
    results = observation.get("results", [])
    if not isinstance(results, list):
        raise Malformed("observation.results: expected array")
    return count.message(results)
