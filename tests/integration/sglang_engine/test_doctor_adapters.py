"""`coresched doctor` where SGLang is installed."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from integration.sglang_engine.environment import OFFLINE

pytestmark = pytest.mark.sglang


def parts(python: Path, **environment: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the rows by name."""
    done = subprocess.run(
        [python, "-m", "coresched", "doctor", "--json"],
        env={**os.environ, **OFFLINE, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, {part["name"]: part for part in json.loads(done.stdout)["installed"]}


def test_the_plugin_is_in_the_tested_release(sglang_python: Path) -> None:
    code, rows = parts(sglang_python)
    assert rows["sglang"]["note"] == "the release that is tested"
    note = rows["sglang plugin"]["note"]
    assert "routing-prefix" in note
    assert note.endswith("is offered; tested with SGLang 0.5.23")
    assert rows["sglang-sim"]["note"] == "the simulated device fits this SGLang"
    assert code == 0


def test_an_engine_that_cannot_be_loaded_is_said(sglang_python: Path) -> None:
    code, rows = parts(sglang_python, SGLANG_PLATFORM="absent")
    assert rows["sglang plugin"]["broken"]
    assert "SGLang cannot be loaded: RuntimeError: SGLANG_PLATFORM='absent'" in rows["sglang plugin"]["note"]
    assert code == 1
