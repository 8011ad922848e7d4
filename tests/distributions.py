"""What a user gets this package from, and the commands that make and try it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]


def clean_environment() -> dict[str, str]:
    """Without PYTHONPATH and the like, which would let the checkout stand in for what is missing."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def copy_tracked_files(folder: Path) -> Path:
    """A folder with what git knows of this checkout. Skips the test elsewhere."""
    if not (CHECKOUT / ".git").exists():
        pytest.skip("the tracked files are known only in a git checkout")
    for name in run("git", "ls-files", "-z", cwd=CHECKOUT).split("\0")[:-1]:
        if (CHECKOUT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, folder / name)
    return folder


def try_installed(scripts: Path, cwd: Path) -> None:
    """Imports, and a run of the command, with what an environment's ``scripts`` folder has."""
    modules = "coresched, coresched.sync, coresched.service.server, coresched.v1.router_pb2_grpc"
    run(scripts / "python", "-c", f"import {modules}", cwd=cwd)
    runs = json.loads(run(scripts / "coresched", "demo", "--json", cwd=cwd))["runs"]
    assert runs[-1]["name"] == "coordinated"
