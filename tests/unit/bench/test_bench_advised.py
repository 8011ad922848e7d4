"""How `python -m bench advised` judges what is advised."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from bench.__main__ import main
from bench.advised.cases import WORKLOADS, as_it_is, cases_of, paper_cases
from bench.advised.claims import claims
from bench.advised.shares import shares
from bench.advised.trials import Trial
from bench.rivals.cases import Source
from coresched.errors import InputError
from coresched.lab.advice.parts import given
from coresched.lab.simulator.settings import RunSettings
from coresched.trajectory.generator import generate
from coresched.trajectory.writer import write_trajectories

CASES = {case.name: case for case in paper_cases()}


def trial(name: str, *saved: float, noise: float = 0.02, leave: bool = False) -> Trial:
    if name in CASES:
        case = CASES[name]
    else:
        case = replace(CASES["SWE, W 1"], name=name, source=Source(name, ("batch.jsonl",)))
    savings = [*saved, *[saved[-1]] * (6 - len(saved))]
    makespans = [100 * (1 - share) for share in savings]
    return Trial(
        case,
        case.settings,
        leave,
        "what is advised",
        1.0,
        2,
        0.0,
        makespans,
        [100.0] * 6,
        [100.0 * (1 + noise), *[100.0] * 5],
    )


def held(*trials: Trial) -> list[bool]:
    return [claim.holds for claim in claims(trials)]


def test_each_workload_of_the_paper_runs_on_one_worker_and_on_two() -> None:
    assert {(case.source.name, case.settings.workers) for case in CASES.values()} == {
        (name, workers) for name in WORKLOADS for workers in (1, 2)
    }
    limits = {case.settings.environment_concurrency for name, case in CASES.items() if "Atlas" in name}
    assert limits == {3, 5, 12, 20}


@pytest.mark.parametrize("name", ["SWE, W 1", "BFCL, W 2", "MCP-Atlas, W 2, C_E 20"])
def test_the_paper_s_method_is_told_as_what_stands_there_today(name: str) -> None:
    method = CASES[name].settings
    plain = RunSettings(
        name=method.name,
        workers=method.workers,
        sample_concurrency=1,
        environment_concurrency=method.environment_concurrency,
        state_ratio=1.0,
        label_capacity=1,
        expectation_noise=method.expectation_noise,
    )
    assert given(plain, as_it_is(method)) == method


def test_a_case_that_is_none_is_named() -> None:
    with pytest.raises(InputError, match="'SWEE' begins no case; there are SWE, W 1; "):
        cases_of(["SWEE"], (), None, None)


@drawn(st.lists(st.floats(-0.5, 0.5), min_size=6, max_size=20))
def test_the_mean_lies_in_its_interval_and_that_between_the_extremes(values: list[float]) -> None:
    found = shares(values)
    assert min(values) - 1e-12 <= found.mean_low <= found.mean + 1e-9
    assert found.mean - 1e-9 <= found.mean_high <= max(values) + 1e-12
    assert found.worst == min(values)
    assert found == shares(values)


def test_the_interval_of_the_mean_is_about_that_of_a_normal_one() -> None:
    found = shares([0.0, 0.1] * 50)
    assert found.mean == pytest.approx(0.05)
    assert found.mean_high - found.mean_low == pytest.approx(2 * 1.96 * 0.05 / 10, rel=0.1)


def test_seven_percent_must_be_saved_on_two_workloads_not_on_two_cases() -> None:
    assert held(trial("SWE, W 1", 0.08), trial("WideSearch, W 2", 0.071)) == [True, True]
    assert held(trial("SWE, W 1", 0.08), trial("SWE, W 2", 0.08)) == [True, False]
    assert held(trial("SWE, W 1", 0.08), trial("BFCL, W 1", 0.069)) == [True, False]


def test_one_seed_that_is_worse_beyond_noise_is_one_too_many() -> None:
    worse, within = trial("SWE, W 1", -0.03, 0.2), trial("SWE, W 1", -0.01, 0.2)
    assert held(worse) == [False, False]
    assert held(within) == [True, False]
    assert "SWE, W 1 is by 3.0%, noise 2.0%" in claims([worse])[0].detail


def test_on_recorded_batches_all_advice_must_surely_save() -> None:
    left = trial("left", 0.0, leave=True)
    assert held(trial("won", 0.02), left) == [True, True]
    assert held(trial("won", 0.02), trial("lost", -0.01, 0.01, -0.01), left) == [True, False]
    assert held(left) == [True, False]


def test_a_recorded_batch_is_searched_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "batch.jsonl"
    write_trajectories(path, generate("terminal", 20, seed=3))
    arguments = ["--trajectories", str(path), "--case", "recorded 1, W 1", "--seeds", "6", "--json"]
    assert main(["advised", *arguments]) == 0
    told = json.loads(capsys.readouterr().out)
    (row,) = told["rows"]
    assert len(row["makespans_s"]) == len(row["method_makespans_s"]) == 6
    assert row["noise"] > 0
    assert row["leave_as_it_is"] == (row["makespans_s"] == row["method_makespans_s"])
    assert [claim["claim"][:8] for claim in told["claims"]] == ["recorded"] * 2


def test_too_few_seeds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advised", "--seeds", "5"]) == 2
    assert "--seeds 5 is too few for an interval; give at least 6" in capsys.readouterr().err
