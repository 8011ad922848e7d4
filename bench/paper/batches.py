"""Batches for planning out of sample: the paper's three workloads and three built to mislead a mean."""

from collections.abc import Callable
from random import Random
from typing import Final

from bench.paper.workloads import Spread, workload
from coresched.trajectory.schema import Environment, Trajectory, Turn

SHORT_TURNS: Final = 3
LONG_TURNS: Final = 80
SHORT_SHARE: Final = 0.7
FEWEST_TURNS: Final = 4
MOST_TURNS: Final = 150

SHARED_PROMPT: Final = 2_000
OWN_PROMPT: Final = Spread(1_500, 0.8)
OUTPUT: Final = Spread(200, 1.0)
RESPONSE: Final = Spread(600, 1.0)


def bimodal(trajectories: int, seed: int) -> list[Trajectory]:
    """Of the trajectories, 70 % have 3 turns and 30 % have 80: no context is near the mean one."""
    rng = Random(f"bimodal/{seed}")
    return [
        _trajectory(number, SHORT_TURNS if rng.random() < SHORT_SHARE else LONG_TURNS, rng)
        for number in range(trajectories)
    ]


def pareto(alpha: float, trajectories: int, seed: int) -> list[Trajectory]:
    """Turn counts of at least 4 with a Pareto tail of index ``alpha``, cut at a turn limit of 150."""
    rng = Random(f"pareto/{alpha}/{seed}")
    return [
        _trajectory(number, min(MOST_TURNS, int(FEWEST_TURNS * rng.paretovariate(alpha))), rng)
        for number in range(trajectories)
    ]


def _trajectory(number: int, count: int, rng: Random) -> Trajectory:
    turns = tuple(
        Turn(
            output_tokens=max(2, round(OUTPUT.draw(rng))),
            env=None
            if turn == count - 1
            else Environment(
                duration_s=0.0, response_tokens=max(8, round(RESPONSE.draw(rng))), duration_quality="exact"
            ),
        )
        for turn in range(count)
    )
    return Trajectory(
        id=f"{number:05}",
        initial_prompt_tokens=SHARED_PROMPT + max(50, round(OWN_PROMPT.draw(rng))),
        shared_prefix_tokens=SHARED_PROMPT,
        turns=turns,
    )


BATCHES: Final[dict[str, Callable[[int], list[Trajectory]]]] = {
    "SWE": lambda seed: workload("SWE", seed),
    "WideSearch": lambda seed: workload("WideSearch", seed),
    "BFCL": lambda seed: workload("BFCL", seed),
    "bimodal": lambda seed: bimodal(600, seed),
    "Pareto 1.1": lambda seed: pareto(1.1, 2_000, seed),
    "Pareto 1.5": lambda seed: pareto(1.5, 2_000, seed),
}
