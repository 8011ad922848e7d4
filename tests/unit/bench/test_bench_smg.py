"""`python -m bench smg`, one short round with the real smg."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers.environments import SMG, program
from bench.smg import BOUNDED, DIRECT, MINTED, PLAIN, ROUTED, STRICT

ROOT = Path(__file__).parents[3]


@pytest.mark.smg
@pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")
def test_a_quick_run_has_every_split_and_cost() -> None:
    program(SMG, "smg", install=True)
    ended = subprocess.run(
        [sys.executable, "-m", "bench", "smg", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    report = json.loads(ended.stdout)
    hot, zipf = report["splits"][:3], report["splits"][3:]
    assert [row["subject"] for row in (*hot, *zipf)] == [STRICT, BOUNDED, MINTED] * 2
    strict, bounded, minted = (row["loads"][0] for row in hot)
    assert strict == [30, 0, 0]
    assert sum(bounded) == 30
    assert max(bounded) <= 1.25 * 30 / 3 + 1
    assert minted == [13, 13, 4]
    assert [row["as_lbch"] for row in (hot[2], zipf[2])] == ["30 of 30", "60 of 60"]
    assert [row["subject"] for row in report["costs"]] == [DIRECT, PLAIN, ROUTED]
    for row in report["costs"]:
        assert row["p50_ms"]["median"] > 0
        assert (row["smg_us"] is None) == (row["subject"] == DIRECT)


def test_without_smg_it_says_what_to_install(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "bench", "smg"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONUTF8": "1", "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
    )
    assert ended.returncode == 2
    assert ended.stderr == "python -m bench smg: smg==1.13.0 must be installed; --install-peers does that\n"
