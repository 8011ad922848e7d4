"""Our subset of Envoy's messages has the bytes of Envoy's own stubs, and both load in one process."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from bench.peers.environments import program

ROOT = Path(__file__).parents[2]
ENVOYS_STUBS = "xds-protos==1.85.0"


@pytest.mark.envoy
def test_envoys_own_stubs_read_what_ours_write_and_ours_what_they_write() -> None:
    python = program(ENVOYS_STUBS, "python", install=True)
    assert python is not None
    finished = subprocess.run(
        [python, str(ROOT / "tests" / "envoy_stubs.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "adapters")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout)
    assert found.pop("messages") > 20
    assert found == {
        "differ": [],
        "header": "a",
        "unread_is_kept": True,
        "refused": [429, "{}"],
        "mark": "m",
        "ends": True,
    }
