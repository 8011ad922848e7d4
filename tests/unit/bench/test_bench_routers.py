"""What `python -m bench routers` compares, and how."""

from dataclasses import replace

import pytest

from bench.__main__ import main
from bench.routers import REFERENCE, Result, against_reference, as_json, cases, run_all


def result(makespan_s: float) -> Result:
    return Result(makespan_s, 0.9, 0.1, 3, 1.5)


def test_cases_differ_in_their_workers_and_admit_as_many_for_each() -> None:
    found = {case.name: case.settings for case in cases()}
    assert len(found) == 8
    for name in ("SWE", "BFCL", "WideSearch"):
        two, four = found[f"{name}, W 2"], found[f"{name}, W 4"]
        assert (two.workers, four.workers) == (2, 4)
        assert four.sample_concurrency == 2 * two.sample_concurrency
        assert four.label_capacity == two.label_capacity


def test_a_router_is_held_to_lbch_seed_by_seed() -> None:
    case = cases()[0]
    results = {
        (case, REFERENCE): [result(100.0 * seed) for seed in range(1, 7)],
        (case, "preble"): [result(90.0 * seed) for seed in range(1, 7)],
    }
    share = against_reference(case, "preble", results)  # type: ignore[arg-type]
    assert (share.median, share.low, share.high) == pytest.approx((-0.1, -0.1, -0.1))
    rows = as_json("command", results)["rows"]  # type: ignore[arg-type]
    assert [row["router"] for row in rows] == [REFERENCE, "preble"]


def test_runs_come_in_the_order_of_the_seeds() -> None:
    case = next(case for case in cases() if case.name == "generated terminal, W 2")
    small = replace(case, settings=replace(case.settings, sample_concurrency=40))
    first = run_all([small], ["sticky-bounded"], [0, 1])
    again = run_all([small], ["sticky-bounded"], [1])
    assert first[small, "sticky-bounded"][1:] == again[small, "sticky-bounded"]


def test_too_few_seeds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["routers", "--seeds", "5"]) == 2
    assert "--seeds 5 is too few for an interval; give at least 6" in capsys.readouterr().err
