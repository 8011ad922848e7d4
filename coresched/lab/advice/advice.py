"""The advice: search, judge, and say what each part brings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from coresched.capacity.profile import profile_of
from coresched.lab.advice.judgement import Interval, interval, saving
from coresched.lab.advice.parts import PARTS, Capacity, given, part_of, with_part
from coresched.lab.advice.recipe import Step, recipe
from coresched.lab.advice.search import KEPT, search, without_idle_changes
from coresched.lab.advice.trials import JUDGED_FROM, Trials
from coresched.lab.ladder import Choices, mechanism_ladder
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.run import SimulatedRun
from coresched.lab.simulator.settings import RunSettings
from coresched.trajectory.schema import Trajectory

HISTORY_NOISE: Final = 0.6
"""Of another run of the same tasks: lengths correlate by ranks at about 0.5."""


@dataclass(frozen=True)
class Judged:
    """One configuration on the held-out orders."""

    name: str
    settings: RunSettings
    makespan_s: Interval
    saved: Interval
    """Share of the makespan as it is that is saved, order by order."""
    cache_reuse: float
    """The median over these orders, as is the next."""
    of_bound: float
    """Makespan over what no schedule could beat."""


@dataclass(frozen=True)
class Contribution:
    """What one part of the advised configuration brings: all of it beside all but this part."""

    part: str
    as_it_is: dict[str, Any]
    advised: dict[str, Any]
    saved: Interval


@dataclass(frozen=True)
class Advice:
    """What to do with this workload on this deployment."""

    as_it_is: Judged
    coordinated: Judged
    """All mechanisms at the values that the capacity model gives, as `coresched simulate` runs them last."""
    advised: Judged
    contributions: tuple[Contribution, ...]
    runs: int
    """Simulated runs that all this took."""
    history: str | None = None
    """The history file to admit by, if there is one."""

    @property
    def steps(self) -> list[Step]:
        """How to set up what is advised, where it is another configuration than today's."""
        return recipe(self.advised.settings, [one.part for one in self.contributions], self.history)

    @property
    def leave(self) -> bool:
        """Whether the answer is to leave it as it is: no change would be sure to be seen."""
        return not self.contributions or self.advised.saved.low < KEPT


def advise(
    trajectories: Sequence[Trajectory],
    model: WorkerModel,
    *,
    workers: int,
    environment_concurrency: int | None,
    as_it_is: Sequence[str] = (),
    orders: int = 10,
    absent_environment_s: float | None = None,
    history: str | None = None,
    expectation_noise: float = HISTORY_NOISE,
    ran: Callable[[int], None] = lambda count: None,
) -> Advice:
    """Search the configuration with the shortest mean makespan, and judge it on ``orders`` other orders.

    ``as_it_is`` has NAME=VALUE for what differs today from the usual defaults: one limit for samples and
    environments, the engine's own pools, FCFS, cache-aware routing. With ``history``, the name of a history
    file, admission by it is tried too, as if it were right about ``trajectories`` but for
    ``expectation_noise`` (see `RunSettings`). ``ran(runs so far)`` is called after each
    simulated run. Raises InputError for a workload that does not fit, or a NAME=VALUE that is none.
    """
    choices = Choices(workers=workers, environment_concurrency=environment_concurrency)
    ladder = mechanism_ladder(trajectories, model, choices)
    usual = replace(ladder[0].settings, name="as it is", expectation_noise=expectation_noise)
    today = given(usual, as_it_is)
    coordinated = replace(ladder[-1].settings, expectation_noise=expectation_noise)
    capacity = Capacity.of(profile_of(trajectories), model)
    trials = Trials(trajectories, model, absent_environment_s, ran)
    trials.run(today, 0)  # says what is wrong with the workload, where something is
    found = search((today, coordinated), capacity, trials, by_history=history is not None)
    found = without_idle_changes(found, today, trials)

    seeds = range(JUDGED_FROM, JUDGED_FROM + orders)
    runs = {
        name: [trials.run(settings, seed) for seed in seeds]
        for name, settings in (
            ("as it is", today),
            ("coordinated", coordinated),
            ("advised", found),
        )
    }
    reference = _makespans(runs["as it is"])
    judged = {name: _judged(name, some, reference) for name, some in runs.items()}
    contributions = [
        Contribution(
            part,
            part_of(today, part),
            part_of(found, part),
            saving(
                _makespans(runs["advised"]),
                [trials.makespan_s(with_part(found, part, today), seed) for seed in seeds],
            ),
        )
        for part in PARTS
        if part_of(found, part) != part_of(today, part)
    ]
    return Advice(
        judged["as it is"],
        judged["coordinated"],
        judged["advised"],
        tuple(contributions),
        trials.runs,
        history,
    )


def _makespans(runs: Sequence[SimulatedRun]) -> list[float]:
    return [run.metrics.makespan_s for run in runs]


def _judged(name: str, runs: Sequence[SimulatedRun], reference_s: Sequence[float]) -> Judged:
    return Judged(
        name,
        replace(runs[0].settings, name=name, seed=0),
        interval(_makespans(runs)),
        saving(_makespans(runs), reference_s),
        interval([run.metrics.cache_reuse for run in runs]).median,
        interval([run.metrics.makespan_s / run.bounds.best for run in runs]).median,
    )
