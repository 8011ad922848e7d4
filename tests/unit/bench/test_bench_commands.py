"""`python -m bench` as its users and their scripts see it."""

import json
import subprocess
import sys
from functools import cache
from math import isclose
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={"PYTHONUTF8": "1"},
        timeout=300,
    )


@cache
def rows_of(command: str) -> list[dict[str, Any]]:
    done = bench(command, "--quick", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["command"] == f"python -m bench {command} --quick --json"
    assert report["machine"].keys() == {"cpu", "cores", "system", "python", "load"}
    rows: list[dict[str, Any]] = report["rows"]
    return rows


@pytest.mark.parametrize("command", ["overhead", "simulator"])
def test_rows(command: str) -> None:
    for row in rows_of(command):
        assert type(row["n"]) is int
        assert isclose(row["ratio"], row["peer_s"] / row["ours_s"])
        for side in ("ours", "peer"):
            q1, q3 = row[f"{side}_spread_s"]
            assert 0 < q1 <= row[f"{side}_s"] <= q3
        assert row["repeats"] == 3


def test_overhead_has_every_case_beside_the_twin() -> None:
    rows = rows_of("overhead")
    assert [(row["case"], row["n"]) for row in rows if row["peer"] == "python-twin"] == [
        *(
            (f"lbch {name}", workers)
            for name in ("route+release", "home", "join+leave")
            for workers in (1, 8, 80)
        ),
        *((f"rp order {name}", waiting) for name in ("steady", "label moved") for waiting in (10, 10_000)),
        ("rp admitted touch", 100),
        ("rp admitted enter", 100),
        *((f"rp pass, {new} new", 1_000) for new in (0, 1, 10, 100)),
        *((f"residency {name}", waiting) for name in ("steady", "label moved") for waiting in (10, 10_000)),
        ("gaps turn", 100),
        *((f"caas {name}", jobs) for name in ("push+pop", "discard+push") for jobs in (1_000, 10_000)),
    ]
    keys = {"case", "n", "ours_s", "ours_spread_s", "peer", "peer_s", "peer_spread_s", "ratio", "repeats"}
    assert all(row.keys() == keys for row in rows)


def test_simulator_counts_events() -> None:
    rows = rows_of("simulator")
    assert [row["case"] for row in rows] == ["fcfs, cache-aware, fcfs", "routing-prefix, lbch, caas"]
    for row in rows:
        assert row["events"] > row["n"] == 24
        assert isclose(row["ours_events_per_s"] * row["ours_s"], 1)
        assert isclose(row["peer_events_per_s"] * row["peer_s"], 1)


@pytest.mark.parametrize("command", ["overhead", "simulator"])
def test_the_table_fits_80_columns(command: str) -> None:
    done = bench(command, "--quick")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == f"$ python -m bench {command} --quick"
    for row in rows_of(command):
        assert any(line.startswith(f"{row['case']} ") for line in lines)
        assert any(f" {row['peer']} " in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "COMMAND"),
        (["latency"], "'latency'"),
        (["overhead", "--repeats"], "--repeats"),
        (["simulator", "twice"], "twice"),
        (["chaos", "--only", "storm"], "storm"),
        (["chaos", "--keep", "docs"], "'docs' must be a new or empty folder"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(arguments: list[str], named: str) -> None:
    done = bench(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("python -m bench")
    assert len(done.stderr.splitlines()) == 1
    assert named in done.stderr
