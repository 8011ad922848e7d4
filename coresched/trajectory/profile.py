"""What a trace contains: counts, distributions, and the cache reuse it allows at best."""

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coresched.errors import InputError
from coresched.trajectory.histogram import Histogram, linear_histogram, log_histogram
from coresched.trajectory.schema import DURATION_QUALITIES, DurationQuality, Trajectory


@dataclass(frozen=True)
class Distribution:
    """Percentiles by nearest rank: pN is the smallest value that N % of the values do not exceed."""

    count: int
    total: float
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class TraceProfile:
    """Numbers of a trace. Distributions are None where nothing was recorded."""

    trajectories: int
    turns: int
    environment_stages: int
    environment_calls: int
    turns_per_trajectory: Distribution
    initial_prompt_tokens: Distribution
    final_context_tokens: Distribution
    """The last prompt and the last reply of each trajectory."""
    prompt_tokens: Distribution
    """Over all requests, so a long trajectory counts as often as it has turns."""
    output_tokens: Distribution
    response_tokens: Distribution | None
    environment_s: Distribution | None
    inference_s: Distribution | None
    environment_share: float | None
    """Environment seconds over environment and inference seconds; of trajectories that state all of both."""
    duration_quality: dict[DurationQuality, int]
    """Environment stages by the quality of their duration."""
    minimum_new_prefill_tokens: int
    """Input tokens that no earlier request can have left in a cache; see `profile`."""
    perfect_cache_reuse: float
    """1 - minimum_new_prefill_tokens / sum of prompt tokens: what one unbounded cache would reach."""
    turns_histogram: Histogram
    environment_histogram: Histogram | None


def profile(trajectories: Iterable[Trajectory]) -> TraceProfile:
    """Profiles trajectories in one pass; keeps about 32 bytes a turn. Raises InputError where there are none.

    The minimum new prefill counts a token when it first is input: the shared prefix once a group, the rest of
    each first prompt, and each environment response. A reply is in the cache from its generation, unless a
    part of it (the reasoning, at its beginning) is dropped from the next prompt: then what is kept is
    prefilled anew.
    """
    totals = _Totals()
    for trajectory in trajectories:
        totals.add(trajectory)
    if not totals.turns:
        raise InputError("there are no trajectories to profile; give at least one")
    return totals.profile()


class _Totals:
    def __init__(self) -> None:
        self.turns = array("I")
        self.initial = array("I")
        self.final = array("q")
        self.prompt = array("q")
        self.output = array("I")
        self.response = array("I")
        self.environment_s = array("d")
        self.inference_s = array("d")
        self.calls = 0
        self.quality = dict.fromkeys(DURATION_QUALITIES, 0)
        self.timed_environment_s = 0.0
        self.timed_inference_s = 0.0
        self.first_time = 0
        self.longest_prefix: dict[str | None, int] = {}

    def add(self, trajectory: Trajectory) -> None:
        prompts = trajectory.prompt_tokens()
        self.turns.append(len(prompts))
        self.initial.append(trajectory.initial_prompt_tokens)
        self.final.append(prompts[-1] + trajectory.turns[-1].output_tokens)
        self.prompt.extend(prompts)
        self.first_time += trajectory.initial_prompt_tokens - trajectory.shared_prefix_tokens
        group = trajectory.group
        self.longest_prefix[group] = max(self.longest_prefix.get(group, 0), trajectory.shared_prefix_tokens)
        environment_s: float | None = 0.0
        inference_s: float | None = 0.0
        last = len(prompts) - 1
        for index, turn in enumerate(trajectory.turns):
            self.output.append(turn.output_tokens)
            if turn.infer_s is not None:
                self.inference_s.append(turn.infer_s)
            inference_s = _plus(inference_s, turn.infer_s)
            if index < last and turn.kept < turn.output_tokens:
                self.first_time += turn.kept
            env = turn.env
            if env is None:
                continue
            self.response.append(env.response_tokens)
            self.calls += env.n_calls
            self.quality[env.quality] += 1
            if env.duration_s is not None:
                self.environment_s.append(env.duration_s)
            environment_s = _plus(environment_s, env.duration_s)
            if index < last:
                self.first_time += env.response_tokens
        if environment_s is not None and inference_s is not None:
            self.timed_environment_s += environment_s
            self.timed_inference_s += inference_s

    def profile(self) -> TraceProfile:
        first_time = self.first_time + sum(self.longest_prefix.values())
        input_tokens = sum(self.prompt)
        timed_s = self.timed_environment_s + self.timed_inference_s
        return TraceProfile(
            trajectories=len(self.turns),
            turns=len(self.prompt),
            environment_stages=len(self.response),
            environment_calls=self.calls,
            turns_per_trajectory=_distribution(self.turns),
            initial_prompt_tokens=_distribution(self.initial),
            final_context_tokens=_distribution(self.final),
            prompt_tokens=_distribution(self.prompt),
            output_tokens=_distribution(self.output),
            response_tokens=_distribution(self.response) if self.response else None,
            environment_s=_distribution(self.environment_s) if self.environment_s else None,
            inference_s=_distribution(self.inference_s) if self.inference_s else None,
            environment_share=self.timed_environment_s / timed_s if timed_s else None,
            duration_quality=self.quality,
            minimum_new_prefill_tokens=first_time,
            perfect_cache_reuse=1 - first_time / input_tokens if input_tokens else 0.0,
            turns_histogram=linear_histogram(self.turns),
            environment_histogram=log_histogram(self.environment_s) if self.environment_s else None,
        )


def _plus(total: float | None, seconds: float | None) -> float | None:
    return None if total is None or seconds is None else total + seconds


def _distribution(values: Sequence[float]) -> Distribution:
    ranked = sorted(values)
    n = len(ranked)
    p50, p90, p99 = (ranked[math.ceil(percent * n / 100) - 1] for percent in (50, 90, 99))
    total = sum(ranked)
    return Distribution(n, total, total / n, p50, p90, p99, ranked[-1])
