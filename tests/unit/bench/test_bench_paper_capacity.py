"""Planning out of sample, and `python -m bench capacity` as its users and their scripts see it."""

import json
import subprocess
import sys
from dataclasses import replace
from math import inf, isclose
from pathlib import Path

import pytest

from bench.capacity import print_all
from bench.machine import Machine
from bench.paper.batches import BATCHES, bimodal, pareto
from bench.paper.figure3 import Cell, Classified, Score
from bench.paper.grid import SimulatedBatch
from bench.paper.outofsample import TOLD, Trial, half_memory, reason, summarised, trials
from bench.results import Report
from coresched.capacity.profile import profile_of
from coresched.lab.plans import Point, by_kappa, by_paper, by_peak, by_requests
from coresched.lab.simulator.model import load_worker_model

ROOT = Path(__file__).parents[3]
TRIAL = Trial("SWE", 2, 144, "peak", Point(0.1, 51), 1040.0, Point(0.14, 64), 1000.0)


def test_batches_of_a_seed_are_the_same_and_of_another_are_not() -> None:
    for name in ("bimodal", "Pareto 1.1", "Pareto 1.5"):
        assert BATCHES[name](1) == BATCHES[name](1) != BATCHES[name](2)


def test_bimodal_has_two_lengths() -> None:
    lengths = [len(each.turns) for each in bimodal(2_000, 0)]
    assert set(lengths) == {3, 80}
    assert 0.65 < lengths.count(3) / 2_000 < 0.75


def test_pareto_has_its_tail() -> None:
    lengths = [len(each.turns) for each in pareto(1.5, 4_000, 0)]
    assert (min(lengths), max(lengths)) == (4, 150)
    # P(turns >= 16) = (4 / 16) ** 1.5 = 1/8.
    assert 0.11 < sum(length >= 16 for length in lengths) / 4_000 < 0.14


def test_plans_on_one_half_and_runs_the_other() -> None:
    steps: list[str] = []
    batch, model = bimodal(60, 3), half_memory()
    done = {trial.estimator: trial for trial in trials("bimodal", 3, batch, model, steps.append)}
    planning, running = profile_of(batch[::2]), profile_of(batch[1::2])
    assert {name: trial.point for name, trial in done.items()} == {
        "peak": by_peak(planning, model),
        "kappa": by_kappa(planning, model),
        "requests": by_requests(planning, model),
        "paper": by_paper(planning, model),
        TOLD: by_peak(running, model),
    }
    half = SimulatedBatch(batch[1::2], model)
    for trial in done.values():
        assert trial.makespan_s == half.makespan_s(trial.point)
        assert trial.best_s == half.makespan_s(trial.best)
        assert (trial.workload, trial.seed, trial.samples) == ("bimodal", 3, 30)
    assert steps == ["planning", "simulating"]


def test_half_the_memory() -> None:
    assert half_memory().pool_tokens * 2 == pytest.approx(load_worker_model().pool_tokens, abs=1)


def test_ratio_to_best_and_target() -> None:
    assert TRIAL.ratio_to_best == 1.04
    assert TRIAL.on_target
    assert not replace(TRIAL, makespan_s=1051.0).on_target
    assert replace(TRIAL, makespan_s=None).ratio_to_best == inf
    assert not replace(TRIAL, makespan_s=None).on_target


def test_summary_is_medians_the_worst_and_a_count() -> None:
    done = [TRIAL, replace(TRIAL, seed=0, makespan_s=1000.0), replace(TRIAL, seed=1, makespan_s=3000.0)]
    summary = summarised(done)
    assert (summary.median_ratio, summary.worst_ratio, summary.on_target, summary.seeds) == (1.04, 3.0, 2, 3)
    assert (summary.concurrency, summary.best_concurrency, summary.state_ratio) == (51, 64, 0.1)


def test_a_miss_says_which_way_and_whether_the_halves_differ() -> None:
    missed = replace(TRIAL, makespan_s=1074.0)
    told = replace(TRIAL, estimator=TOLD, point=Point(0.13, 60), makespan_s=1010.0)
    assert reason(missed, told) == (
        "peak, SWE, seed 2: 1.074x at C = 51, below the best 64;\n"
        "  told the half, C = 60 and 1.010x: the halves differ"
    )
    over = replace(TRIAL, point=Point(0.2, 70), makespan_s=1300.0)
    assert "above the best 64" in reason(over, told)
    assert reason(over, replace(told, makespan_s=1060.0)).endswith("margin and allowance for other orders")


def test_the_tables_fit_80_columns_and_name_every_miss(capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine("some cpu", 2, "Linux", "CPython 3.11", 0.5)
    cells = [
        Classified("SWE", 0, "paper", Score(29, 36, (), (Cell(0.1, 98, 1.0),))),
        Classified("SWE", 1, "paper", Score(31, 36, (), (Cell(0.1, 98, 1.0),) * 3)),
    ]
    missed = replace(TRIAL, workload="WideSearch", makespan_s=1200.0)
    done = [
        TRIAL,
        missed,
        replace(missed, estimator=TOLD, makespan_s=1000.0),
        replace(TRIAL, estimator="paper", makespan_s=None),
    ]
    print_all(Report("python -m bench capacity", machine, 2, ()), cells, done)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "$ python -m bench capacity"
    rows = [line.split() for line in lines]
    assert ["SWE", "paper", "29", "to", "31", "36", "0", "/", "2"] in rows
    assert ["SWE", "peak", "1.040x", "1.040x", "51", "64", "0.100", "1", "of", "1"] in rows
    assert ["SWE", "paper", "cannot", "run", "cannot", "run", "51", "64", "0.100", "0", "of", "1"] in rows
    assert [line for line in lines if line.startswith("peak, ") and "seed" in line] == [
        "peak, WideSearch, seed 2: 1.200x at C = 51, below the best 64;"
    ]


def test_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "capacity", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={"PYTHONUTF8": "1"},
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["command"] == "python -m bench capacity --quick --json"
    assert {(row["workload"], row["score"]["cells"]) for row in report["figure3"]} == {
        ("SWE", 36),
        ("BFCL", 25),
        ("WideSearch", 25),
    }
    peak = [row for row in report["out_of_sample"] if row["estimator"] == "peak"]
    assert [row["workload"] for row in peak] == ["WideSearch", "bimodal"]
    for row in report["out_of_sample"]:
        assert isclose(row["ratio_to_best"], row["makespan_s"] / row["best_s"])
        assert row["on_target"] == (row["ratio_to_best"] <= 1.05)
    assert all(row["on_target"] for row in peak)
