"""`python -m bench aibrix`, one short round."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.aibrix import CANDIDATES, RATES

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")
def test_a_quick_run_measures_each_load() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "bench", "aibrix", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    rows = json.loads(ended.stdout)["rows"]
    assert [(row["candidates"], row["per_second"]) for row in rows] == [
        (candidates, rate) for candidates in CANDIDATES for rate in RATES
    ]
    for row in rows:
        assert row["requests"] == row["per_second"] * 0.5
        assert 0 < row["p50_ms"]["median"] <= row["p99_ms"]["median"]
        assert row["cpu_us"]["median"] > 0
