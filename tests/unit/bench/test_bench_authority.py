"""`python -m bench authority`: what it prints, and whose CPU time stands where."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.authority import BOTH, DECISION, LOCAL, ROUTER, SHARED

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")
def test_rows_of_both_gateways_and_of_the_decision_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "authority", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    subjects = [LOCAL, SHARED, BOTH]
    assert [(row["case"], row["n"], row["subject"]) for row in rows] == [
        *(("chat", 1, name) for name in subjects),
        *(("chat", 32, name) for name in subjects),
        *(("stream", 32, name) for name in subjects),
        (DECISION, 1, ROUTER),
        (DECISION, 32, ROUTER),
    ]
    for row in rows:
        assert all(row[name]["median"] > 0 for name in ("requests_per_s", "p50_s", "p99_s", "cpu_s"))
    resident = {
        (row["n"], row["subject"]): row.get("resident_bytes") for row in rows if row["case"] == "chat"
    }
    for n in (1, 32):
        assert resident[n, BOTH]["median"] > resident[n, SHARED]["median"]
