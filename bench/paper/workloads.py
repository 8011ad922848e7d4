"""Synthetic batches with the published totals of the paper's workloads; their per-turn data is not public.

Totals (trajectories, requests, output tokens) are exact. Shapes are ours: log-normal turn counts and lengths.
Responses are sized so that the mean final context is what the published reference concurrency implies on
the published memory (SWE and WideSearch about 82k tokens, BFCL about 3k); the mean input per request then
comes out at 52k, 53k and 6k (published totals over requests: 48k, 45k and 7k).
"""

import math
from dataclasses import dataclass, replace
from random import Random

from coresched.trajectory.schema import Environment, Trajectory, Turn


@dataclass(frozen=True)
class Spread:
    """A log-normal quantity by its mean and its coefficient of variation."""

    mean: float
    variation: float

    def draw(self, rng: Random) -> float:
        sigma = math.sqrt(math.log(1 + self.variation**2))
        return self.mean * math.exp(rng.gauss(-sigma * sigma / 2, sigma))


@dataclass(frozen=True)
class Family:
    """One kind of trajectory of a workload. ``front_load`` makes early responses longer than late ones."""

    name: str
    trajectories: int
    requests: int
    output_tokens: int
    turns: Spread
    fewest_turns: int
    most_turns: int
    own_prompt: Spread
    shared_prompt: int
    response: Spread
    output: Spread
    front_load: float = 0.0
    groups: int = 1


SWE = (
    Family(
        name="swe",
        trajectories=289,
        requests=25_416,
        output_tokens=6_000_784,
        turns=Spread(1.0, 0.42),
        fewest_turns=15,
        most_turns=300,
        own_prompt=Spread(2_500, 1.0),
        shared_prompt=6_500,
        response=Spread(580, 1.6),
        output=Spread(1.0, 1.3),
        front_load=0.15,
    ),
)
WIDE_SEARCH = (
    Family(
        name="wide",
        trajectories=200,
        requests=5_672,
        output_tokens=4_736_147,
        turns=Spread(1.0, 0.45),
        fewest_turns=5,
        most_turns=85,
        own_prompt=Spread(1_500, 0.8),
        shared_prompt=3_000,
        response=Spread(1_980, 1.1),
        output=Spread(1.0, 1.3),
        front_load=0.2,
    ),
)
BFCL = (
    Family(
        name="single",
        trajectories=3_747,
        requests=3_747,
        output_tokens=450_000,
        turns=Spread(1.0, 0.0),
        fewest_turns=1,
        most_turns=1,
        own_prompt=Spread(585, 0.5),
        shared_prompt=250,
        response=Spread(100, 0.5),
        output=Spread(1.0, 0.9),
    ),
    Family(
        name="multi",
        trajectories=1_094,
        requests=7_761,
        output_tokens=409_000,
        turns=Spread(1.0, 1.14),
        fewest_turns=2,
        most_turns=40,
        own_prompt=Spread(700, 0.5),
        shared_prompt=4_880,
        response=Spread(88, 1.0),
        output=Spread(1.0, 1.0),
        groups=5,
    ),
    Family(
        name="web",
        trajectories=265,
        requests=5_521,
        output_tokens=582_547,
        turns=Spread(1.0, 0.34),
        fewest_turns=4,
        most_turns=90,
        own_prompt=Spread(300, 0.3),
        shared_prompt=1_500,
        response=Spread(560, 1.0),
        output=Spread(1.0, 1.0),
        front_load=0.3,
    ),
)
WORKLOADS = {"SWE": SWE, "BFCL": BFCL, "WideSearch": WIDE_SEARCH}


def workload(name: str, seed: int = 0, response_factor: float = 1.0) -> list[Trajectory]:
    """The named workload of the paper; another seed is another batch with the same totals.

    ``response_factor`` makes the responses longer or shorter.
    """
    rng = Random(f"{name}/{seed}")
    families = (
        replace(family, response=Spread(family.response.mean * response_factor, family.response.variation))
        for family in WORKLOADS[name]
    )
    return [trajectory for family in families for trajectory in _family(family, rng)]


def _family(family: Family, rng: Random) -> list[Trajectory]:
    counts = apportion(
        [family.turns.draw(rng) for _ in range(family.trajectories)],
        family.requests,
        family.fewest_turns,
        family.most_turns,
    )
    outputs = apportion([family.output.draw(rng) for _ in range(family.requests)], family.output_tokens, 2)
    result, place = [], 0
    for number, count in enumerate(counts):
        turns = []
        for turn in range(count):
            tilt = 1 + family.front_load * (1 - 2 * turn / count)
            response = max(8, round(family.response.draw(rng) * tilt))
            last = turn == count - 1
            env = (
                None
                if last
                else Environment(duration_s=0.0, response_tokens=response, duration_quality="exact")
            )
            turns.append(Turn(output_tokens=outputs[place], env=env))
            place += 1
        result.append(
            Trajectory(
                id=f"{family.name}-{number:05}",
                initial_prompt_tokens=family.shared_prompt + max(50, round(family.own_prompt.draw(rng))),
                shared_prefix_tokens=family.shared_prompt,
                group=f"{family.name}-{number * family.groups // family.trajectories}",
                turns=tuple(turns),
            )
        )
    return result


def apportion(weights: list[float], total: int, fewest: int, most: int | None = None) -> list[int]:
    """Integers about proportional to the weights, each within the limits, that add up to ``total``."""
    limit = total if most is None else most
    low, high = 0.0, 2.0 * total
    factor = (low + high) / 2
    while low < factor < high:  # to the last bit: the factor whose clamped shares add up to the total
        reached = sum(min(limit, max(fewest, math.floor(weight * factor))) for weight in weights)
        low, high = (factor, high) if reached < total else (low, factor)
        factor = (low + high) / 2
    shares = [min(limit, max(fewest, math.floor(weight * low))) for weight in weights]
    missing = total - sum(shares)
    for place in sorted(range(len(weights)), key=lambda place: -weights[place] * low % 1):
        if missing == 0:
            break
        if fewest <= shares[place] < limit and weights[place] * low >= fewest:
            shares[place] += 1
            missing -= 1
    if missing:
        raise ValueError(f"total {total} cannot be shared out between {fewest} and {limit} each")
    return shares
