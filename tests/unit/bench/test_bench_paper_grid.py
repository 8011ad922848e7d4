"""The search for the best cell, on landscapes with a known best and on the simulator."""

from collections.abc import Callable
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import outcome_of, settings, small_model, trajectory

from bench.paper.grid import CONCURRENCY_STEP, RATIO_STEP, SimulatedBatch, best_cell
from coresched.lab.plans import Point
from coresched.trajectory.schema import Trajectory

MODEL = small_model()


def some(count: int) -> list[Trajectory]:
    return [
        trajectory(f"t{number}", [(20 + number, 0.0, 30), (40, None, 0)], prompt=300 + 10 * number)
        for number in range(count)
    ]


class Landscape(SimulatedBatch):
    """A batch whose makespan is a given function of the point."""

    def __init__(self, samples: int, makespan: Callable[[Point], float | None]) -> None:
        super().__init__([trajectory(f"t{number}", [(1, None, 0)]) for number in range(samples)], MODEL)
        self.makespan = makespan

    def makespan_s(self, point: Point) -> float | None:
        return self.makespan(point)


def bowl(best: Point) -> Callable[[Point], float]:
    def makespan(point: Point) -> float:
        return 1 + log(point.ratio / best.ratio) ** 2 + log(point.concurrency / best.concurrency) ** 2

    return makespan


@given(st.floats(0.02, 3.0), st.integers(5, 180), st.floats(0.02, 3.0), st.integers(5, 180))
def test_the_grid_grows_to_the_best_wherever_it_lies(
    ratio: float, concurrency: int, start_ratio: float, start: int
) -> None:
    found, makespan = best_cell(Landscape(200, bowl(Point(ratio, concurrency))), Point(start_ratio, start))
    assert abs(log(found.ratio / ratio)) <= log(RATIO_STEP) / 4
    assert abs(found.concurrency - concurrency) <= max(1, concurrency * (CONCURRENCY_STEP - 1) / 4)
    assert makespan == bowl(Point(ratio, concurrency))(found)


def test_concurrency_stays_between_one_and_the_batch() -> None:
    seen: list[int] = []

    def falling(point: Point) -> float:
        seen.append(point.concurrency)
        return 1 / point.concurrency

    assert best_cell(Landscape(40, falling), Point(0.1, 30))[0].concurrency == 40
    assert best_cell(Landscape(40, lambda point: point.concurrency), Point(0.1, 6))[0].concurrency == 1
    assert max(seen) == 40
    assert best_cell(Landscape(40, falling), Point(0.1, 4_000))[0].concurrency == 40


def test_ratios_stay_where_the_pools_hold_the_batch() -> None:
    def rising(point: Point) -> float | None:
        return point.ratio if point.ratio >= 0.05 else None

    found, makespan = best_cell(Landscape(40, rising), Point(0.4, 10))
    assert 0.05 <= found.ratio <= 0.05 * RATIO_STEP**0.25
    assert makespan == found.ratio


def test_a_plateau_does_not_grow_for_ever() -> None:
    assert best_cell(Landscape(40, lambda point: 7.0), Point(0.4, 10))[1] == 7.0


def test_a_batch_that_nothing_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="no cell around"):
        best_cell(Landscape(40, lambda point: None), Point(0.4, 10))


def test_a_point_is_the_simulators_run() -> None:
    batch = SimulatedBatch(some(12), MODEL)
    run = settings(sample_concurrency=5, state_ratio=0.5, label_capacity=1)
    assert batch.makespan_s(Point(0.5, 5)) == outcome_of(some(12), run, MODEL).completed_s[-1]


def test_pools_too_small_for_the_batch_are_no_makespan() -> None:
    batch = SimulatedBatch(some(12), MODEL)
    assert batch.makespan_s(Point(0.001, 5)) is None  # no slot
    assert batch.makespan_s(Point(99.0, 5)) is None  # 120 KV tokens


def test_no_cell_of_the_first_grid_beats_the_best() -> None:
    batch = SimulatedBatch(some(40), MODEL)
    best, best_s = best_cell(batch, Point(0.5, 15))
    assert batch.makespan_s(best) == best_s
    tried = [makespan for makespan in batch.found.values() if makespan is not None]
    assert len(tried) >= 2 * 35 - 1
    assert min(tried) == best_s
