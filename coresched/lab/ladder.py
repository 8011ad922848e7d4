"""The comparison every user starts with: today's defaults, then one mechanism after another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from coresched.capacity.labels import label_capacity
from coresched.capacity.profile import profile_of
from coresched.lab.plans import at_ratio, by_paper, by_peak, by_pool
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.settings import EngineSettings, RunSettings
from coresched.trajectory.schema import Trajectory


@dataclass(frozen=True)
class Rung:
    """One run of the ladder and what it adds to the run before it."""

    settings: RunSettings
    adds: str


@dataclass(frozen=True)
class Choices:
    """What the user fixes for every run; None leaves the choice to the capacity model."""

    workers: int = 2
    environment_concurrency: int | None = None
    sample_concurrency: int | None = None
    state_ratio: float | None = None
    label_capacity: int | None = None
    load_bound: float = 1.25
    band_s: float = 30.0
    bucket_s: float = 1.0
    seed: int = 0


NAMES: Final = ("baseline", "decoupled", "balanced-pools", "lbch", "routing-prefix", "coordinated")
"""The runs of the ladder, first to last."""


@dataclass(frozen=True)
class Engine:
    """What the ladder must know of an engine whose own scheduler serves the turns."""

    worker_policy: str
    """Its own name of the baseline's policy."""
    unbalanced: str | None
    """Why there are no two pools to balance, and so no such run; None where there are."""


def mechanism_ladder(
    trajectories: Sequence[Trajectory], model: WorkerModel, choices: Choices, engine: Engine | None = None
) -> list[Rung]:
    """Baseline first, all mechanisms last. ``engine`` is for runs on an engine, with pools like ``model``.

    The baseline admits samples and runs environments under one limit, min(C_I*, C_E), on pools at the
    engine's default ratio, first come first served, behind a cache-aware router. Each rung keeps what the
    previous one added.
    """
    profile = profile_of(trajectories)
    guess = by_paper(profile, model).concurrency
    balanced = engine is None or engine.unbalanced is None
    if not balanced:
        planned = by_pool(profile, model, guess)
    elif choices.state_ratio is None:
        planned = by_peak(profile, model, guess)
    else:
        planned = at_ratio(profile, model, choices.state_ratio, guess)
    default = at_ratio(profile, model, model.default_state_ratio, guess) if balanced else planned
    ratio = planned.ratio
    reference = min(choices.workers * planned.concurrency, len(trajectories))
    default_reference = min(choices.workers * default.concurrency, len(trajectories))
    most = choices.sample_concurrency or reference
    environment = choices.environment_concurrency

    def unified(limit: int) -> int:
        return limit if environment is None else min(limit, environment)

    baseline = (RunSettings if engine is None else EngineSettings)(
        name="baseline",
        workers=choices.workers,
        sample_concurrency=unified(default_reference),
        environment_concurrency=environment,
        state_ratio=model.default_state_ratio,
        label_capacity=choices.label_capacity or label_capacity(most, choices.workers),
        worker_policy="fcfs" if engine is None else engine.worker_policy,
        load_bound=choices.load_bound,
        band_s=choices.band_s,
        bucket_s=choices.bucket_s,
        seed=choices.seed,
    )
    decoupled = replace(
        baseline, name="decoupled", sample_concurrency=choices.sample_concurrency or default_reference
    )
    pools = replace(
        decoupled,
        name="balanced-pools",
        state_ratio=ratio,
        sample_concurrency=most,
    )
    lbch = replace(pools if balanced else decoupled, name="lbch", routing="lbch")
    prefix = replace(lbch, name="routing-prefix", worker_policy="routing-prefix")
    coordinated = replace(prefix, name="coordinated", environment_policy="caas")
    limit = "no environment limit" if environment is None else f"C_E = {environment}"
    policy = "FCFS" if baseline.worker_policy == "fcfs" else baseline.worker_policy
    rungs = [
        Rung(
            baseline,
            f"one limit for samples and environments (C_S = {baseline.sample_concurrency}, {limit}), "
            + (f"r = {baseline.state_ratio:.3g}, " if balanced else "")
            + f"{policy}, cache-aware routing",
        ),
        Rung(
            decoupled,
            f"samples admitted apart from environment slots, C_S = {decoupled.sample_concurrency}"
            + ("; without an environment limit nothing changes" if environment is None else ""),
        ),
        Rung(
            pools,
            f"cache pools balanced for this workload, r = {ratio:.3g}, so C_S = {pools.sample_concurrency}",
        ),
        Rung(
            lbch, f"trajectories kept on their worker within a load bound (LBCH), alpha = {lbch.load_bound:g}"
        ),
        Rung(prefix, f"warm requests first inside each worker (RP), C_A = {prefix.label_capacity}"),
        Rung(
            coordinated,
            "environment jobs of long chains first (CAAS), "
            f"B = {choices.band_s:g} s, D_I = {choices.bucket_s:g} s"
            + ("; without an environment limit there is no queue" if environment is None else ""),
        ),
    ]
    return [rung for rung in rungs if balanced or rung.settings is not pools]
