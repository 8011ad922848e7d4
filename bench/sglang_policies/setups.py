"""The workloads and the limits under which the policies are compared."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from coresched.trajectory.schema import Environment, Trajectory, Turn


@dataclass(frozen=True)
class SetUp:
    """A batch of synthetic multi-turn trajectories on one engine. Lengths are means; see `trajectories`."""

    name: str
    samples: int
    sample_concurrency: int
    turns: int = 6
    initial_prompt_tokens: int = 6_000
    output_tokens: int = 64
    response_tokens: int = 1_200
    environment_s: float = 0.5
    max_running_requests: int = 8
    state_slots: int = 64

    def server_args(self) -> dict[str, Any]:
        """Fields of SGLang's ServerArgs, without model and policy."""
        return {
            "context_length": 65_536,
            "max_running_requests": self.max_running_requests,
            "max_mamba_cache_size": self.state_slots,
            # An idle trajectory keeps its last state only.
            "mamba_max_states_per_path": 1,
        }

    def trajectories(self, seed: int) -> list[Trajectory]:
        """The same for the same seed: numbers of tokens are uniform in 0.5 to 1.5 times the mean.

        The first prompt is uniform in 0.6 to 1.4 times, environment durations are exponential.
        """
        return [self._trajectory(Random(f"{seed} {place}"), place) for place in range(self.samples)]

    def _trajectory(self, random: Random, place: int) -> Trajectory:
        initial = round(self.initial_prompt_tokens * (0.6 + 0.8 * random.random()))
        count = max(1, int(self.turns * (0.5 + random.random())))
        return Trajectory(
            id=f"trajectory-{place:04d}",
            initial_prompt_tokens=initial,
            turns=tuple(self._turns(random, count)),
        )

    def _turns(self, random: Random, count: int) -> Iterator[Turn]:
        for number in range(1, count + 1):
            output = max(1, round(self.output_tokens * (0.5 + random.random())))
            if number == count:
                yield Turn(output)
                return
            response = round(self.response_tokens * (0.5 + random.random()))
            # Only random() is promised to give the same numbers in every Python; whole milliseconds.
            duration = round(-math.log(1 - random.random()) * self.environment_s, 3)
            yield Turn(output, env=Environment(duration, response))


# The queue stays below 128, where lpm gives up matching prefixes; and it does not.
SHORT_QUEUE = SetUp("short-queue", samples=96, sample_concurrency=48)
LONG_QUEUE = SetUp("long-queue", samples=200, sample_concurrency=200)
# More trajectories between two turns than the state slots can hold beside the running requests.
LONG_STAGES = SetUp("long-stages", samples=96, sample_concurrency=96, environment_s=5.0)
SETUPS = (SHORT_QUEUE, LONG_QUEUE, LONG_STAGES)


def smaller(setup: SetUp) -> SetUp:
    """A batch of about a fifth of the work, with the same queue against the same limits."""
    return replace(setup, turns=3, initial_prompt_tokens=2_000, output_tokens=16, response_tokens=600)
