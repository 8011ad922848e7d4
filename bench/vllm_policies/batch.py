"""A batch of trajectories through one engine that is stepped, in a time that its steps' tokens give."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from random import Random
from time import perf_counter
from typing import Any, Protocol

from coresched.lab.simulator.model import load_worker_model
from coresched.trajectory.schema import Trajectory

_TIMES = load_worker_model().times
_LONGEST_IDLE = 100


class Finished(Protocol):
    """A request that has ended, as `coresched_vllm.virtual.engine.Finished`."""

    request_id: str
    tokens: list[int]
    prompt_tokens: int
    cached_tokens: int


class Engine(Protocol):
    """What `VirtualEngine` and `ModelEngine` have in common."""

    scheduler: Any
    steps: int
    empty_steps: int
    scheduled_tokens: int
    preemptions: int

    def submit(
        self, request_id: str, prompt: Sequence[int], output_tokens: int, *, session_id: str
    ) -> None: ...
    def step(self) -> Sequence[Finished]: ...


@dataclass
class Outcome:
    """Of one batch. Tokens are of prompts, but for ``computed_tokens``, which are all that were scheduled."""

    steps: int = 0
    empty_steps: int = 0
    makespan_s: float = 0.0
    """By `step_duration_s`, not of this machine."""
    wall_s: float = 0.0
    ordering_s: float = 0.0
    """Of this machine: for ordering the waiting queue, all passes together; 0 where nothing is ordered."""
    prefix_queries: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    computed_once_tokens: int = 0
    """What an endless prefix cache would leave to compute, had it a state at every token."""
    later_turns: int = 0
    later_turns_without_hit: int = 0
    preemptions: int = 0
    replies: str = ""
    """A digest of all that was generated."""

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "hit_share": self.cached_tokens / self.prompt_tokens,
            "recomputed_tokens": self.computed_tokens - self.computed_once_tokens,
        }


def step_duration_s(tokens: int) -> float:
    """Of a step that computes so many tokens: a decode step's time, and a prefill token's for each."""
    return _TIMES.decode_step_s + _TIMES.prefill_token_s * tokens


class _Running:
    """One trajectory on its way."""

    def __init__(self, trajectory: Trajectory, seed: int) -> None:
        self.trajectory = trajectory
        self.turn = 0
        self._random = Random(f"{seed} {trajectory.id}")
        self.context = self._tokens(trajectory.initial_prompt_tokens)
        self.computed = 0
        """Leading tokens of the context that were computed in an earlier turn."""
        self.replies: list[list[int]] = []

    def _tokens(self, count: int) -> list[int]:
        return [3 + byte for byte in self._random.randbytes(count)]

    def end_turn(self, finished: Finished, outcome: Outcome) -> bool:
        """Whether it was the last."""
        turn = self.trajectory.turns[self.turn]
        prompt = finished.prompt_tokens
        outcome.prompt_tokens += prompt
        outcome.cached_tokens += finished.cached_tokens
        # The last token of a reply is computed only in the next prompt.
        outcome.computed_once_tokens += prompt + turn.output_tokens - 1 - self.computed
        outcome.later_turns += self.turn > 0
        outcome.later_turns_without_hit += self.turn > 0 and finished.cached_tokens == 0
        self.replies.append(finished.tokens[prompt:])
        self.computed = prompt + min(turn.kept, turn.output_tokens - 1)
        self.context = finished.tokens[: prompt + turn.kept]
        self.turn += 1
        if self.turn == len(self.trajectory.turns):
            return True
        assert turn.env is not None  # as between any two turns
        self.context += self._tokens(turn.env.response_tokens)
        return False


def run_batch(
    engine: Engine, trajectories: Sequence[Trajectory], sample_concurrency: int, seed: int
) -> Outcome:
    """Run it to its end, so many trajectories at a time. Raises RuntimeError where the engine stands still.

    Tokens are random, by ``seed``; environment stages without a duration take none.
    """
    outcome, now, idle = Outcome(), 0.0, 0
    began = perf_counter()
    batch = [_Running(trajectory, seed) for trajectory in trajectories]
    due = [(0.0, number) for number in range(min(sample_concurrency, len(batch)))]
    started, unfinished = len(due), len(batch)
    while unfinished:
        while due and due[0][0] <= now:
            _, number = heappop(due)
            one = batch[number]
            output = one.trajectory.turns[one.turn].output_tokens
            engine.submit(f"{number}.{one.turn}", one.context, output, session_id=one.trajectory.id)
        before = engine.scheduled_tokens
        ended = engine.step()
        tokens = engine.scheduled_tokens - before
        if tokens:
            now += step_duration_s(tokens)
        elif not ended and due and not engine.scheduler.has_unfinished_requests():
            now = max(now, due[0][0])
        idle = 0 if tokens or ended or due else idle + 1
        if idle > _LONGEST_IDLE:
            raise RuntimeError(f"the engine stands still with {unfinished} trajectories unfinished")
        for finished in ended:
            number = int(finished.request_id.split(".")[0])
            one = batch[number]
            env = one.trajectory.turns[one.turn].env
            if not one.end_turn(finished, outcome):
                heappush(due, (now + ((env and env.duration_s) or 0.0), number))
                continue
            unfinished -= 1
            if started < len(batch):
                heappush(due, (now, started))
                started += 1
    outcome.wall_s = perf_counter() - began
    outcome.makespan_s = now
    _read(engine, outcome)
    outcome.replies = hashlib.sha256(str([one.replies for one in batch]).encode()).hexdigest()
    return outcome


def _read(engine: Engine, outcome: Outcome) -> None:
    outcome.steps, outcome.empty_steps = engine.steps, engine.empty_steps
    outcome.computed_tokens, outcome.preemptions = engine.scheduled_tokens, engine.preemptions
    ordering = getattr(engine.scheduler, "ordering", None)
    if ordering is not None:  # of this project
        counts = ordering.counts()
        outcome.ordering_s = counts.seconds
        outcome.prefix_queries = getattr(counts, "queries", 0)
    elif hasattr(engine.scheduler, "queries"):  # the rival
        outcome.ordering_s, outcome.prefix_queries = engine.scheduler.seconds, engine.scheduler.queries
