"""A batch of trajectories through one engine: a turn's prompt is the last one's, its reply and a response."""

from __future__ import annotations

from dataclasses import dataclass, field

from coresched_vllm.virtual.engine import Finished, VirtualEngine


@dataclass(frozen=True)
class Batch:
    """``trajectories`` of so many ``turns``, all begun at once; sizes in tokens, the environment in steps."""

    trajectories: int
    turns: int
    prompt: int
    response: int
    output: int
    environment_steps: int = 2


@dataclass
class Outcome:
    """Of one batch. Tokens are of prompts, but for ``scheduled_tokens``, which are all that were computed."""

    steps: int = 0
    empty_steps: int = 0
    scheduled_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    contexts: list[list[int]] = field(default_factory=list)
    """The tokens of each trajectory at its end."""

    @property
    def hit_share(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    @property
    def recomputed_tokens(self) -> int:
        """Tokens computed beyond once each. The last token of a trajectory is never computed."""
        return self.scheduled_tokens - sum(len(context) - 1 for context in self.contexts)


def run_batch(engine: VirtualEngine, batch: Batch, *, labelled: bool = True) -> Outcome:
    """Run it to its end. Raises RuntimeError where the engine stands still."""
    outcome = Outcome(contexts=[_tokens(number, 0, batch.prompt) for number in range(batch.trajectories)])
    turns = [0] * batch.trajectories
    due: dict[int, list[int]] = {0: list(range(batch.trajectories))}
    unfinished, idle = batch.trajectories, 0
    before = engine.steps, engine.empty_steps, engine.scheduled_tokens, engine.preemptions
    step = 0
    while unfinished:
        for number in due.pop(step, ()):
            label = f"trajectory-{number}" if labelled else None
            engine.submit(
                f"{number}.{turns[number]}", outcome.contexts[number], batch.output, session_id=label
            )
        scheduled = engine.scheduled_tokens
        finished = engine.step()
        step += 1
        idle = 0 if engine.scheduled_tokens > scheduled or finished or due else idle + 1
        if idle > 100:
            raise RuntimeError(f"the engine stands still with {unfinished} trajectories unfinished")
        for each in finished:
            number = int(each.request_id.split(".")[0])
            turns[number] += 1
            _count(outcome, each)
            outcome.contexts[number] = each.tokens
            if turns[number] == batch.turns:
                unfinished -= 1
                continue
            outcome.contexts[number] += _tokens(number, len(each.tokens), batch.response)
            due.setdefault(step + batch.environment_steps, []).append(number)
    after = engine.steps, engine.empty_steps, engine.scheduled_tokens, engine.preemptions
    outcome.steps, outcome.empty_steps, outcome.scheduled_tokens, outcome.preemptions = (
        now - then for now, then in zip(after, before, strict=True)
    )
    return outcome


def _count(outcome: Outcome, finished: Finished) -> None:
    outcome.prompt_tokens += finished.prompt_tokens
    outcome.cached_tokens += finished.cached_tokens


def _tokens(number: int, start: int, count: int) -> list[int]:
    """No two trajectories share a block's tokens: the first of each block tells them apart."""
    return [3 + (number * 7_919 + place * 31 + place // 7) % 500 for place in range(start, start + count)]
