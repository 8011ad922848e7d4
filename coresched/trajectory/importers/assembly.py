"""A trajectory from recorded model calls: what each prompt adds, and what the figures are worth."""

from coresched.errors import InputError
from coresched.trajectory.importers.recording import Call, Importer, Sample, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.schema import Environment, Trajectory, Turn

COMPACTED_BELOW = 0.5
"""A prompt shorter than this share of the one before is a new context, not a slightly shorter old one."""


def assemble(sample: Sample, importer: Importer, count: TokenCounter) -> list[Trajectory]:
    """The trajectory of a sample; several, `id#2` and on, where its context was given up and begun anew.

    The second and the later ones say which they are in `meta.part`.

    With P the recorded prompt, O the output and R the reasoning in it, the reply's kept part is O - R, and
    the response is what the next prompt has beyond P and that. Where the next prompt is too short for both,
    less of the reply was kept. A prompt that is shorter than the one before, but by less than half, cannot be
    told in the schema, whose prompts only grow: it is imported at the length of the one before, and
    `meta.prompt_overstated_tokens` says by how much at the most. Raises InputError for a sample without model
    calls and for what the schema refuses.
    """
    if not sample.calls:
        raise InputError("there is no answered model call in it")
    parts: list[Trajectory] = []
    start = 0
    while start < len(sample.calls):
        turns, first, overstated = _part(sample.calls[start:])
        name = f"{sample.id}#{len(parts) + 1}" if parts else sample.id
        meta = _meta(sample, sample.calls[start : start + len(turns)], turns, importer, count)
        meta |= sample.meta
        if parts:
            meta["part"] = len(parts) + 1
        if sample.model:
            meta["model"] = sample.model
        if overstated:
            meta["prompt_overstated_tokens"] = overstated
        if sample.anomalies:
            meta["clock_anomalies"] = len(sample.anomalies)
        parts.append(Trajectory(id=name, initial_prompt_tokens=first, turns=tuple(turns), meta=meta))
        start += len(turns)
    return parts


def _part(calls: list[Call]) -> tuple[list[Turn], int, int]:
    """Turns up to where the context is given up, the first prompt, and the largest overstatement."""
    first = context = max(calls[0].prompt_tokens or calls[0].added_text_tokens, 1)
    turns: list[Turn] = []
    overstated = 0
    for number, call in enumerate(calls):
        output = max(call.reply_text_tokens if call.output_tokens is None else call.output_tokens, 1)
        kept = 0 if call.dropped else output - min(call.reasoning_tokens, output)
        response = 0
        following = calls[number + 1] if number + 1 < len(calls) else None
        compacted = False
        if following is not None:
            if following.prompt_tokens is None:
                added = kept + following.added_text_tokens
                kept, response = (kept, following.added_text_tokens)
            else:
                added = following.prompt_tokens - context
                compacted = following.prompt_tokens < COMPACTED_BELOW * context
                kept = min(kept, max(added, 0))
                response = max(added - kept, 0)
                if not compacted:
                    overstated = max(overstated, -added)
            context += kept + response
        last = following is None or compacted
        env = _environment(call.stage, 0 if last else response, last)
        turns.append(
            Turn(
                output_tokens=output,
                kept_tokens=None if last or kept == output else kept,
                infer_s=call.infer_s,
                env=env,
            )
        )
        if compacted:
            break
    return turns, first, overstated


def _environment(stage: Stage | None, response: int, last: bool) -> Environment | None:
    if stage is None:
        # Between two model calls without a tool the harness answered, at once as far as anything tells.
        return None if last else Environment(0.0, response, n_calls=0, duration_quality="estimated")
    if last and stage.duration_s is None:
        return None  # nothing is known of it, and nothing comes after it
    return Environment(stage.duration_s, response, stage.n_calls, stage.kind, stage.quality)


def _meta(
    sample: Sample, calls: list[Call], turns: list[Turn], importer: Importer, count: TokenCounter
) -> dict[str, object]:
    usage = sum(call.output_tokens is not None for call in calls)
    tokens = f"exact: {importer.tokens}"
    if usage < len(calls):
        missing = "" if not usage else f"{len(calls) - usage} of {len(calls)} calls: "
        tokens = f"{count.quality}: {missing}{count.how}"
    meta: dict[str, object] = {"imported_from": importer.name, "tokens": tokens}
    timed = any(turn.infer_s is not None for turn in turns)
    meta["inference"] = (sample.inference or importer.inference) if timed else "absent"
    stages = [turn.env for turn in turns if turn.env is not None and turn.env.n_calls]
    measured = any(stage.duration_s is not None for stage in stages)
    meta["env_duration"] = (sample.environment or importer.environment) if measured else "absent"
    return meta
