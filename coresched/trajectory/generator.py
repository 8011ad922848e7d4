"""Generates trajectories whose lengths and durations follow public recordings of agents.

Every quantity is drawn independently from a log-normal distribution: in the recordings the trajectory a turn
belongs to explains 7% or less of the variance of its log durations and lengths.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from statistics import NormalDist

from coresched.errors import InputError
from coresched.trajectory.refusal import shown
from coresched.trajectory.schema import Environment, Trajectory, Turn

_NORMAL = NormalDist()
# Random takes the absolute value, so that -7 would silently be 7; and JSON readers stop at 64 bits.
_MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class LogNormal:
    """exp(mu + sigma z), z standard normal, clamped to [low, high]; mu and sigma are of the natural log."""

    mu: float
    sigma: float
    low: float
    high: float

    def draw(self, rng: Random) -> float:
        # Of Random's methods only random() is promised to give the same numbers in every Python.
        z = _NORMAL.inv_cdf(max(rng.random(), 2.0**-53))
        return min(max(math.exp(self.mu + self.sigma * z), self.low), self.high)


@dataclass(frozen=True)
class WorkloadProfile:
    """The distributions of one kind of agent, and what they were fitted to."""

    fitted_to: str
    turns: LogNormal
    initial_prompt_tokens: LogNormal
    shared_prefix_tokens: int
    output_tokens: LogNormal
    response_tokens: LogNormal
    environment_s: tuple[tuple[float, LogNormal], ...]
    """(weight, distribution) of a mixture; weights sum to 1; empty: durations are absent."""
    inference: tuple[float, float] | None
    """Seconds before the first token, and output tokens a second; None: not known."""


PROFILES: dict[str, WorkloadProfile] = {
    "swe": WorkloadProfile(
        fitted_to="500 SWE-bench Verified trajectories of mini-swe-agent with Gemini 3 Pro (20,163 turns): "
        "exact tokens, environment durations estimated from time stamps of 1 s resolution",
        turns=LogNormal(3.60, 0.42, 1, 145),
        initial_prompt_tokens=LogNormal(7.48, 0.25, 1317, 10427),
        shared_prefix_tokens=0,
        output_tokens=LogNormal(4.75, 1.22, 1, 65536),
        response_tokens=LogNormal(4.46, 1.70, 0, 14847),
        environment_s=((1.0, LogNormal(0.00, 1.62, 0.05, 105.82)),),
        inference=(1.67, 117.0),
    ),
    "terminal": WorkloadProfile(
        fitted_to="171 Terminal-Bench trajectories of mini-swe-agent with Claude Sonnet 4 (3,478 turns): "
        "tokens counted from the terminal text, environment durations measured, commands cut off at 30 s",
        turns=LogNormal(2.87, 0.54, 1, 58),
        # Only the mean, 1,555 tokens, is known; the spread is taken from `swe`.
        initial_prompt_tokens=LogNormal(7.318, 0.25, 500, 10427),
        shared_prefix_tokens=0,
        output_tokens=LogNormal(4.77, 1.05, 1, 65536),
        response_tokens=LogNormal(4.72, 1.54, 0, 65536),
        # 64% below 0.1 s and 9% at the limit are recorded; the rest is chosen to come close to mean and p90.
        environment_s=(
            (0.64, LogNormal(-3.71, 0.50, 0.001, 0.0999)),
            (0.27, LogNormal(0.30, 1.55, 0.1, 30.0)),
            (0.09, LogNormal(math.log(30.0), 0.0, 30.0, 30.0)),
        ),
        # From p50 and p90 of inference (3.4 s, 12 s) at p50 and p90 of the output.
        inference=(0.4, 39.0),
    ),
    "tool-user": WorkloadProfile(
        fitted_to="200 tau-bench airline conversations of GPT-4o (2,454 turns): tokens counted with a "
        "similar tokenizer, neither inference nor environment durations recorded",
        turns=LogNormal(2.37, 0.54, 1, 30),
        initial_prompt_tokens=LogNormal(8.174, 0.003, 3535, 3583),
        # All conversations have the same rules and tools: their first prompts differ by 48 tokens at most.
        shared_prefix_tokens=3500,
        output_tokens=LogNormal(3.86, 0.71, 10, 468),
        response_tokens=LogNormal(3.88, 1.41, 4, 2841),
        environment_s=(),
        inference=None,
    ),
}


def generate(profile: str, count: int, seed: int) -> Iterator[Trajectory]:
    """Yields `count` trajectories of a profile: `swe`, `terminal` or `tool-user`.

    The same profile and seed give the same trajectories in every Python; a larger count only appends.
    Durations come in steps of 1 ms; their quality is estimated, for they are drawn, not measured. Those of
    `tool-user` are absent. Raises InputError, at the call, for an unknown profile, a count below 1 or a seed
    below 0 or over 64 bits.
    """
    if profile not in PROFILES:
        raise InputError(f"profile is {shown(profile)}; it must be one of {', '.join(PROFILES)}")
    if count < 1:
        raise InputError(f"count is {count}; it must be an integer >= 1")
    if not 0 <= seed <= _MAX_SEED:
        raise InputError(f"seed is {seed}; it must be an integer >= 0 and <= {_MAX_SEED}")
    return _generate(profile, count, seed)


def _generate(name: str, count: int, seed: int) -> Iterator[Trajectory]:
    profile = PROFILES[name]
    rng = Random(seed)
    for index in range(count):
        initial = round(profile.initial_prompt_tokens.draw(rng))
        n_turns = round(profile.turns.draw(rng))
        yield Trajectory(
            id=f"{name}-{seed}-{index:05d}",
            initial_prompt_tokens=initial,
            shared_prefix_tokens=profile.shared_prefix_tokens,
            turns=tuple(_turn(profile, rng, last=number == n_turns) for number in range(1, n_turns + 1)),
            meta={"generated": name, "seed": seed},
        )


def _turn(profile: WorkloadProfile, rng: Random, last: bool) -> Turn:
    output = round(profile.output_tokens.draw(rng))
    infer_s = None
    if profile.inference is not None:
        wait_s, tokens_a_second = profile.inference
        infer_s = round(wait_s + output / tokens_a_second, 3)
    return Turn(output_tokens=output, infer_s=infer_s, env=None if last else _environment(profile, rng))


def _environment(profile: WorkloadProfile, rng: Random) -> Environment:
    response = round(profile.response_tokens.draw(rng))
    if not profile.environment_s:
        return Environment(response_tokens=response)
    weights, distributions = zip(*profile.environment_s, strict=True)
    share = rng.random()
    chosen = min(bisect_right(list(accumulate(weights)), share), len(weights) - 1)
    duration = round(distributions[chosen].draw(rng), 3)
    return Environment(duration_s=duration, response_tokens=response, duration_quality="estimated")
