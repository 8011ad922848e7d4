"""Lockstep runs on the twin's workers: results, refusals, and how far workers are advanced."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from simulated import settings, small_model, trajectory
from stepped_workers import SteppedTwins, TwinDeployment

from coresched.errors import InputError
from coresched.lab.comparison import Comparison, as_json, compare, turn_rows
from coresched.lab.ladder import Choices, Engine, mechanism_ladder
from coresched.lab.report.page import comparison_page
from coresched.lab.simulator.lockstep.cluster import LockstepCluster
from coresched.lab.simulator.lockstep.run import simulate_in_lockstep
from coresched.lab.simulator.lockstep.turns import measure_turns
from coresched.lab.simulator.lockstep.workers import FinishedTurn, WorkerCounts
from coresched.lab.simulator.memory import split_memory
from coresched.lab.simulator.run import simulate
from coresched.lab.simulator.settings import EngineSettings
from coresched.lab.simulator.workload import build_workload

BATCH = [
    trajectory(f"t{place}", [(20, 1.5 + place, 30), (10, 0.2, 5), (4, None, 0)], prompt=100 + 7 * place)
    for place in range(6)
]
MODEL = small_model(pool_tokens=40_000)


def test_a_lockstep_run_is_the_simulated_run_and_tells_of_its_turns() -> None:
    run = settings(workers=2, sample_concurrency=4, environment_concurrency=2, seed=3)
    lockstep = simulate_in_lockstep(BATCH, run, TwinDeployment(MODEL))
    simulated = simulate(BATCH, run, MODEL)
    unsaid = {"priority_calculation_s": None, "evictions": None}
    told = {"ttft_s": lockstep.metrics.ttft_s, "events": lockstep.metrics.events}
    assert lockstep.metrics == replace(simulated.metrics, **unsaid, **told)
    assert lockstep.metrics.ttft_s == pytest.approx(simulated.metrics.ttft_s)
    assert lockstep.turns is not None
    assert simulated.turns is None
    assert lockstep.turns.later_turns == 12


class Watched(SteppedTwins):
    """Notes how far workers are advanced, and what arrives."""

    def note(self) -> None:
        self.windows: list[tuple[int, float]] = []
        self.arrivals: list[float] = []

    def advance(self, workers: Sequence[int], until: float) -> list[list[FinishedTurn]]:
        self.windows.append((len(workers), until))
        return super().advance(workers, until)

    def enqueue(self, worker: int, sample: int, turn: int, t: float) -> None:
        # What an engine cannot forgive: to be told of what happened before the time it is at.
        assert all(until <= t for _, until in self.windows)
        self.arrivals.append(t)
        super().enqueue(worker, sample, turn, t)


def test_no_worker_is_advanced_past_an_arrival_and_workers_go_together() -> None:
    run = settings(workers=3, sample_concurrency=6)
    workload = build_workload(BATCH, page_tokens=MODEL.page_tokens)
    workers = Watched(workload, run, MODEL, split_memory(MODEL, run.state_ratio))
    workers.note()
    LockstepCluster(workload, run, MODEL.times, workers, kv_tokens=1).run()
    assert len(workers.arrivals) == 18
    assert max(together for together, _ in workers.windows) == 3


def test_turns_are_measured() -> None:
    turns = [
        FinishedTurn(0, 1.0, 2.0, 0, 0.5),
        FinishedTurn(1, 1.0, 2.0, 7, 1.5, retractions=2),
        FinishedTurn(0, 3.0, 4.0, 0, 0.25),
        FinishedTurn(1, 3.0, 4.0, 9, 0.0),
    ]
    measured = measure_turns(turns, 2, 100, [WorkerCounts(1.0, 60), WorkerCounts(2.0, 45)])
    assert (measured.later_turns, measured.later_turns_without_hit) == (2, 1)
    assert (measured.queue_p95_s, measured.retractions, measured.recomputed_tokens) == (1.5, 2, 5)


def ladder_of(engine: Engine, deployment: TwinDeployment) -> Comparison:
    rungs = mechanism_ladder(BATCH, MODEL, Choices(workers=2), engine)
    return compare(
        BATCH,
        MODEL,
        rungs,
        title="t",
        workload="w",
        deployment=deployment,
        unbalanced=engine.unbalanced,
    )


def test_an_engine_without_states_has_no_pools_to_balance_and_no_ratio() -> None:
    comparison = ladder_of(Engine("lpm", unbalanced="one pool"), TwinDeployment(MODEL))
    names = [run.settings.name for run in comparison.runs]
    assert names == ["baseline", "decoupled", "lbch", "routing-prefix", "coordinated"]
    assert [run.settings.worker_policy for run in comparison.runs] == ["lpm"] * 3 + ["routing-prefix"] * 2
    assert "r = " not in "".join(rung.adds for rung in comparison.rungs)
    runs = as_json(comparison)["runs"]
    assert {run["settings"]["state_ratio"] for run in runs} == {None}
    assert {run["evictions"] for run in runs} == {run["priority_calculation_s"] for run in runs} == {None}
    assert msgspec.json.encode(runs)


def test_tables_and_report_have_what_the_workers_tell() -> None:
    comparison = ladder_of(Engine("fcfs", unbalanced=None), TwinDeployment(MODEL))
    assert [row[0] for row in turn_rows(comparison)] == [rung.settings.name for rung in comparison.rungs]
    assert "Turns inside the workers" in comparison_page(comparison)
    assert {"later_turns_without_hit", "queue_p95_s"} <= as_json(comparison)["runs"][0].keys()


def test_an_engines_policy_names_are_its_own_and_the_models_are_checked() -> None:
    assert EngineSettings("e", 1, 1, None, 1.0, 1, worker_policy="lof").worker_policy == "lof"
    with pytest.raises(InputError, match="worker_policy is 'lof'; it must be one of fcfs, lpm"):
        settings(worker_policy="lof")
    with pytest.raises(InputError, match="workers is 0"):
        EngineSettings("e", 0, 1, None, 1.0, 1)
