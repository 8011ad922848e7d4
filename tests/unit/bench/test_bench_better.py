"""What `python -m bench better` tries, and when it keeps a part."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.better.parts import ALL, PARTS, with_parts
from bench.better.trials import KEPT, METHOD, STACK, Trial, judged, try_all, variants
from bench.rivals.cases import Case, recorded_cases
from bench.rivals.runs import Result
from coresched.lab.advice.judgement import Interval
from coresched.trajectory.generator import generate
from coresched.trajectory.writer import write_trajectories


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    """A small recorded batch on one worker and on two."""
    path = tmp_path / "batch.jsonl"
    write_trajectories(path, generate("terminal", 20, seed=3))
    return list(recorded_cases([str(path)], None, None))


def left_out(case: Case, part: str, low: float, high: float) -> Trial:
    runs = [Result(100.0, 0.9, 1.5, None, 0)] * 6
    share = Interval((low + high) / 2, low, high)
    return Trial(case, f"without {part}", ALL - {part}, runs, Interval(0, 0, 0), part, share)


def test_each_part_changes_its_own_settings_alone(cases: list[Case]) -> None:
    case = cases[1]
    method = case.settings
    changed = {part: with_parts(case, {part}) for part in PARTS}
    assert changed["residency"] == replace(method, worker_policy="routing-residency-unguarded")
    assert changed["guard"] == method
    assert changed["release"] == replace(method, release_finished=True)
    assert changed["routing"] == replace(method, routing="sticky-bounded")
    assert changed["admission"] == replace(method, admission_policy="longest-expected-first")
    pools = changed["pools"]
    assert pools.state_ratio > method.state_ratio  # a request's mean context is shorter than the last one
    assert pools.sample_concurrency <= method.sample_concurrency
    assert pools.label_capacity > method.label_capacity
    same = ("state_ratio", "sample_concurrency", "label_capacity")
    assert replace(pools, **{name: getattr(method, name) for name in same}) == method
    assert with_parts(case, ALL).worker_policy == "routing-residency"


def test_every_part_is_left_out_once_and_tried_alone_where_it_can_matter(cases: list[Case]) -> None:
    one, two = (set(variants(case)) for case in cases)
    assert two - one == {"without routing", "only routing"}
    assert {f"without {part}" for part in PARTS} <= two
    assert {f"only {part}" for part in PARTS} - two == {"only guard"}


@pytest.mark.parametrize(
    ("shares", "kept"),
    [
        ([(0.01, 0.02), (-0.01, 0.01)], True),
        ([(0.01, 0.02), (-0.02, -0.006)], False),
        ([(0.01, 0.02), (-0.004, -0.001)], True),
        ([(-0.01, 0.02), (-0.01, 0.01)], False),
    ],
)
def test_a_part_is_kept_if_it_surely_helps_somewhere_and_costs_nowhere(
    cases: list[Case], shares: list[tuple[float, float]], kept: bool
) -> None:
    trials = [left_out(case, "guard", *share) for case, share in zip(cases, shares, strict=True)]
    assert judged("guard", trials).kept is kept


def test_a_run_says_what_each_part_saves_and_tries_what_is_kept(cases: list[Case]) -> None:
    told: list[tuple[int, int]] = []
    trials, verdicts = try_all(cases, 6, lambda runs, of: told.append((runs, of)))
    by_name = {(trial.case.name, trial.variant): trial for trial in trials}
    for trial in trials:
        assert len(trial.runs) == 6
        assert (trial.brings is None) == (trial.part is None)
        if trial.variant == METHOD:
            assert trial.longer == Interval(0.0, 0.0, 0.0)
    assert [verdict.part for verdict in verdicts] == list(PARTS)
    kept = frozenset(verdict.part for verdict in verdicts if verdict.kept)
    for case in cases:
        assert (case.name, STACK) in by_name
        if kept != ALL:
            assert by_name[case.name, KEPT].parts == kept
