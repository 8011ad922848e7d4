"""A workload as the planner sees it: for each trajectory, what it holds in memory and for how long."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from coresched.errors import InputError
from coresched.trajectory.schema import Trajectory


@dataclass(frozen=True)
class Stage:
    """One turn: KV tokens held from its beginning (the reply's room included), and how long it lasts.

    ``inference_s`` is the model call; ``waiting_s`` the environment stage after it, during which the
    trajectory keeps its cache but runs nothing.
    """

    tokens: int
    inference_s: float
    waiting_s: float


@dataclass(frozen=True)
class Chain:
    """One trajectory's stages; the first ``shared_tokens`` are held once for all chains of ``group``."""

    stages: tuple[Stage, ...]
    group: str | None
    shared_tokens: int

    @property
    def final_tokens(self) -> int:
        return self.stages[-1].tokens

    @property
    def duration_s(self) -> float:
        return sum(stage.inference_s + stage.waiting_s for stage in self.stages)


@dataclass(frozen=True)
class WorkloadProfile:
    """The chains of a batch. ``timed`` tells whether durations are seconds that were recorded.

    Where they are not, a turn lasts as many units as it generates tokens and nothing ever waits, so every
    admitted trajectory counts as running: the safe assumption.
    """

    chains: tuple[Chain, ...]
    timed: bool

    @property
    def mean_final_tokens(self) -> float:
        """L_kv: mean KV tokens of a trajectory at its final turn."""
        return sum(chain.final_tokens for chain in self.chains) / len(self.chains)

    @property
    def mean_request_tokens(self) -> float:
        """L_req: mean KV tokens of a request at its end, over all turns of all trajectories."""
        held = [stage.tokens for chain in self.chains for stage in chain.stages]
        return sum(held) / len(held)

    @property
    def waiting_share(self) -> float:
        """Share of a trajectory's time that it waits on its environment."""
        total = sum(chain.duration_s for chain in self.chains)
        return sum(stage.waiting_s for chain in self.chains for stage in chain.stages) / total

    @property
    def kappa(self) -> float:
        """kappa = E[integral of context over time] / (E[T] E[L_final]): active against final context.

        Length-biased: below 1 where contexts grow evenly, above 1 where few long trajectories stay longest.
        """
        held = sum(
            stage.tokens * (stage.inference_s + stage.waiting_s)
            for chain in self.chains
            for stage in chain.stages
        )
        total = sum(chain.duration_s for chain in self.chains)
        return held / (total * self.mean_final_tokens)

    def resampled(self, rng: random.Random) -> "WorkloadProfile":
        """As many chains, drawn with replacement: what another batch of the same kind could have been."""
        return WorkloadProfile(tuple(rng.choices(self.chains, k=len(self.chains))), self.timed)

    def scaled(self, factor: float) -> "WorkloadProfile":
        """The same with every context ``factor`` times as long."""
        return WorkloadProfile(
            tuple(
                Chain(
                    tuple(
                        Stage(max(1, round(stage.tokens * factor)), stage.inference_s, stage.waiting_s)
                        for stage in chain.stages
                    ),
                    chain.group,
                    round(chain.shared_tokens * factor),
                )
                for chain in self.chains
            ),
            self.timed,
        )


def profile_of(trajectories: Iterable[Trajectory]) -> WorkloadProfile:
    """The planner's view of recorded or generated trajectories.

    Recorded seconds are used only when every turn has its inference time and every environment stage its
    duration; a mixture of seconds and token counts would mean nothing.
    Raises InputError for an empty workload.
    """
    recorded = list(trajectories)
    if not recorded:
        raise InputError("the workload has no trajectory; give at least one")
    turns = [turn for trajectory in recorded for turn in trajectory.turns]
    timed = all(
        turn.infer_s is not None and (turn.env is None or turn.env.duration_s is not None) for turn in turns
    ) and any(turn.infer_s for turn in turns)
    return WorkloadProfile(tuple(_chain(trajectory, timed) for trajectory in recorded), timed)


def _chain(trajectory: Trajectory, timed: bool) -> Chain:
    stages = []
    for turn, prompt in zip(trajectory.turns, trajectory.prompt_tokens(), strict=True):
        inference_s = (turn.infer_s or 0.0) if timed else float(turn.output_tokens)
        waiting_s = (turn.env.duration_s or 0.0) if timed and turn.env is not None else 0.0
        stages.append(Stage(prompt + turn.output_tokens, inference_s, waiting_s))
    return Chain(tuple(stages), trajectory.group, trajectory.shared_prefix_tokens)


Item = TypeVar("Item")


def shuffled(items: Sequence[Item], seed: int) -> list[Item]:
    """The items in their own order for seed 0, in another fixed order for any other."""
    order = list(items)
    if seed:
        random.Random(seed).shuffle(order)
    return order
