"""`python -m bench sglang-priority` on the real engine's requests and radix tree."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from integration.sglang_engine.environment import CHECKOUT, ENGINE_VERSION

from bench.sglang_priority import names

pytestmark = pytest.mark.sglang


def test_every_policy_is_timed_at_every_length(sglang_python: Path, tmp_path: Path) -> None:
    """The program itself refuses hits that are not those of the tree, and orders that are not RP's."""
    page = tmp_path / "growth.html"
    command = ["sglang-priority", "--quick", "--json", "--plot", page, "--sglang-python", sglang_python]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *command], cwd=CHECKOUT, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["engine"]["sglang"] == ENGINE_VERSION
    assert report["engine"]["tree"] == "RustUnifiedTreeCore"
    assert report["engine"]["resident_tokens"] > 100 * 10_000
    policies = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    policies |= set(names.OURS_SOME_NEW.values())
    for waiting in (100, 1000):
        rows = [row for row in report["rows"] if row["waiting"] == waiting]
        assert {row["policy"] for row in rows} == policies
        assert len(rows) == len(policies)
        assert all(0 < row["pass_spread_s"][0] <= row["pass_s"] <= row["pass_spread_s"][1] for row in rows)
    assert page.read_text(encoding="utf-8").count("<polyline") > 0
