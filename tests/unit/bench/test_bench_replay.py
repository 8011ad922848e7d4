"""`python -m bench replay` as its users and their scripts see it."""

import json
import subprocess
import sys
from math import isclose
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_case_is_run_live_and_simulated() -> None:
    command = [
        sys.executable,
        "-m",
        "bench",
        "replay",
        "--quick",
        "--workers",
        "2",
        "--speed",
        "20",
        "--json",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["command"] == "python -m bench replay --quick --workers 2 --speed 20 --json"
    rows = report["rows"]
    assert [row["case"] for row in rows] == [
        "unified",
        "decoupled",
        "consistent hash",
        "LBCH, CAAS",
        "LBCH, CAAS, RP",
    ]
    for row in rows:
        assert row["turns"] == 32
        assert isclose(row["apart"], row["live_s"] / row["simulated_s"] - 1)
        assert 0 <= row["late_ms"] <= row["p99_late_ms"]
        low, high = row["simulated_range_s"]
        assert low <= row["simulated_s"] <= high
    # At home all trajectories reuse the same, live and simulated.
    assert isclose(rows[2]["live_reuse"], rows[2]["simulated_reuse"])
