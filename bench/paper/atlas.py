"""A batch like the paper's MCP-Atlas replay, whose trajectories are not public.

Published are 495 trajectories and, by the makespans of Figure 11, about how much environment work there is:
one limit of 3 for samples and environments takes 250 minutes, and apart 166, little above environment work
over 3. That gives 6.6 s a stage and 10 turns a trajectory; the spreads are ours.
"""

from random import Random
from typing import Final

from bench.paper.workloads import Spread, apportion
from coresched.trajectory.schema import Environment, Trajectory, Turn

TRAJECTORIES: Final = 495
REQUESTS: Final = 4_950
OUTPUT: Final = Spread(190, 1.2)
RESPONSE: Final = Spread(900, 1.5)
PROMPT: Final = Spread(9_000, 0.3)
STAGE_S: Final = Spread(6.6, 1.3)
TURNS: Final = Spread(1.0, 0.6)
FEWEST_TURNS, MOST_TURNS = 2, 60


def atlas(seed: int) -> list[Trajectory]:
    """Another seed is another batch with the same number of turns."""
    rng = Random(f"MCP-Atlas/{seed}")
    counts = apportion([TURNS.draw(rng) for _ in range(TRAJECTORIES)], REQUESTS, FEWEST_TURNS, MOST_TURNS)
    return [_trajectory(number, count, rng) for number, count in enumerate(counts)]


def _trajectory(number: int, count: int, rng: Random) -> Trajectory:
    return Trajectory(
        id=f"atlas-{number:04}",
        initial_prompt_tokens=max(500, round(PROMPT.draw(rng))),
        turns=tuple(
            Turn(
                output_tokens=max(2, round(OUTPUT.draw(rng))),
                env=None if turn == count - 1 else _stage(rng),
            )
            for turn in range(count)
        ),
    )


def _stage(rng: Random) -> Environment:
    return Environment(
        duration_s=STAGE_S.draw(rng),
        response_tokens=max(8, round(RESPONSE.draw(rng))),
        duration_quality="estimated",
    )
