"""Whether harnesses, and Ray, have what their adapters enter; found out in processes that load them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coresched_harness.compatibility import Fit

TIMEOUT_S = 300.0


def harness_fits() -> tuple[Fit, ...]:
    """The adapters of harnesses, and Ray's. None of these is loaded for that."""
    from coresched_bfcl.compatibility import FIT as BFCL
    from coresched_inspect.compatibility import FIT as INSPECT
    from coresched_miniswe.compatibility import FIT as MINISWE
    from coresched_ray.compatibility import FIT as RAY
    from coresched_tau2.compatibility import FIT as TAU2

    return INSPECT, MINISWE, BFCL, TAU2, RAY


def inspect_harness(distribution: str) -> list[str] | str:
    """What its adapter needs and the harness lacks, or the line with which it could not be loaded."""
    command = [sys.executable, "-m", "coresched.cli.harness_adapters", distribution]
    with tempfile.TemporaryDirectory() as folder:  # for those that make folders where they are imported
        variables = {"BFCL_PROJECT_ROOT": folder, "MSWEA_GLOBAL_CONFIG_DIR": folder}
        variables["MSWEA_SILENT_STARTUP"] = "1"
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                env={**os.environ, **variables},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it was not loaded within {TIMEOUT_S:g} s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    lacks: list[str] = json.loads(done.stdout.strip().splitlines()[-1])
    return lacks


if __name__ == "__main__":
    print(json.dumps(next(fit for fit in harness_fits() if fit.distribution == sys.argv[1]).missing()))
