"""Runs a script of this folder in Ray's Python; it writes FOLDER/results.json."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from integration.ray_cluster.environment import RAY

HERE = Path(__file__).parent
LONGEST_S = 120.0


def run_scenarios(script: str, folder: Path) -> dict[str, Any]:
    """What the script found. Nothing of its Ray runs afterwards, however it ended."""
    command = [str(RAY.python()), str(HERE / script), str(folder)]
    environment = {**os.environ, **RAY.variables, "PYTHONUNBUFFERED": "1"}
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            status = process.wait(LONGEST_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert status == 0, (folder / "output").read_text()[-8000:]
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return results
