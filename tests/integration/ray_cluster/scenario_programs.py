"""Programs that Ray's Python runs for tests."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from integration.ray_cluster.environment import RAY

HERE = Path(__file__).parent


def scenario(program: str) -> Any:
    """The JSON object that a program of this folder prints."""
    environment = {**os.environ, **RAY.variables, "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(
        [RAY.python(), HERE / program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)
