"""Simulated runs of one batch in many orders, each run once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import exp, fsum, inf, log
from typing import Final

from coresched.errors import InputError
from coresched.lab.bounds import Bounds
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.run import SimulatedRun, run_workload
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload, build_workload
from coresched.trajectory.schema import Trajectory

SEARCHED: Final = range(1, 5)
"""Seeds that the search sees. What it finds is judged on others."""
CONFIRMED: Final = range(11, 21)
"""Those on which a change that was found must pay; on the orders that chose it, luck is enough."""
JUDGED_FROM: Final = 101
"""The first of the seeds that neither sees."""


@dataclass
class Trials:
    """Runs of the batch by configuration and seed. ``ran(count)`` is called after each that is new."""

    trajectories: Sequence[Trajectory]
    model: WorkerModel
    absent_environment_s: float | None = None
    ran: Callable[[int], None] = lambda count: None
    _makespans: dict[RunSettings, float] = field(default_factory=dict, repr=False)
    _workloads: dict[int, Workload] = field(default_factory=dict, repr=False)
    _bounds: dict[tuple[int, int, int | None], Bounds] = field(default_factory=dict, repr=False)

    def run(self, settings: RunSettings, seed: int) -> SimulatedRun:
        """One run. Raises InputError where a trajectory does not fit."""
        if seed not in self._workloads:
            self._workloads[seed] = build_workload(
                self.trajectories,
                page_tokens=self.model.page_tokens,
                seed=seed,
                absent_environment_s=self.absent_environment_s,
            )
        bounded = seed, settings.workers, settings.environment_concurrency
        run = run_workload(
            self._workloads[seed],
            replace(settings, name="trial", seed=seed),
            self.model,
            bounds=self._bounds.get(bounded),
        )
        self._bounds[bounded] = run.bounds
        self._makespans[run.settings] = run.metrics.makespan_s
        self.ran(len(self._makespans))
        return run

    def makespan_s(self, settings: RunSettings, seed: int) -> float:
        """Infinite where a trajectory does not fit into the pools."""
        key = replace(settings, name="trial", seed=seed)
        if key not in self._makespans:
            try:
                self.run(settings, seed)
            except InputError:
                self._makespans[key] = inf
        return self._makespans[key]

    @property
    def runs(self) -> int:
        """Different runs so far."""
        return len(self._makespans)

    def mean_s(self, settings: RunSettings, seeds: Iterable[int]) -> float:
        """The geometric mean of the makespans, in which half as long outweighs twice as long."""
        logs = [log(self.makespan_s(settings, seed)) for seed in seeds]
        return exp(fsum(logs) / len(logs))
