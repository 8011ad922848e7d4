"""The engine's release wheel: fetched once by pip into the user's cache, checked, and read in place."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

DIRECTORY_VARIABLE = "CORESCHED_SGLANG_WHEEL_DIR"
"""Names a folder that holds, or shall hold, the wheel; by default one under the user's cache directory."""


class WheelUnavailable(Exception):
    """The wheel is not there and cannot be fetched; the message says why."""


class WrongEngine(Exception):
    """What is there is not the unmodified release the product is written for."""


class Wheel:
    """An SGLang wheel of ``version``; a file read from it is first compared with the wheel's own record."""

    def __init__(self, path: Path, version: str) -> None:
        self.path = path
        self._archive = zipfile.ZipFile(path)
        folder = next((n for n in self._archive.namelist() if n.endswith(".dist-info/METADATA")), None)
        if folder is None:
            raise WrongEngine(f"{path} is no wheel; remove it, or point {DIRECTORY_VARIABLE} elsewhere")
        found = next(
            line.partition(": ")[2]
            for line in self._archive.read(folder).decode().splitlines()
            if line.startswith("Version: ")
        )
        if found != version:
            raise WrongEngine(
                f"{path} is SGLang {found}, but the pool arithmetic is written for {version}; give the "
                "oracle that release, or compare the two by hand and move ENGINE_VERSION"
            )
        rows = self._archive.read(folder.replace("METADATA", "RECORD")).decode().splitlines()
        self._digests = {name: digest for name, digest, _ in (row.rsplit(",", 2) for row in rows)}

    def text(self, name: str) -> str:
        """The text of a file, such as "sglang/srt/environ.py". Raises WrongEngine when it was changed."""
        data = self._archive.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if self._digests.get(name) != f"sha256={digest}":
            raise WrongEngine(f"{name} in {self.path} differs from the wheel's own record; remove that file")
        return data.decode()


def wheel_directory() -> Path:
    if chosen := os.environ.get(DIRECTORY_VARIABLE):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "coresched" / "wheels"


def find_wheel(version: str) -> Wheel:
    """The wheel of ``version``, fetched if it is not in the folder yet.

    Raises WheelUnavailable when it cannot be fetched, WrongEngine when a named folder has another one.
    """
    directory = wheel_directory()
    fitting = sorted(directory.glob(f"sglang-{version}-*.whl"))
    others = sorted(directory.glob("sglang-*.whl"))
    if fitting:
        return Wheel(fitting[0], version)
    if others and os.environ.get(DIRECTORY_VARIABLE):
        return Wheel(others[0], version)
    return Wheel(_fetch(version, directory), version)


def _fetch(version: str, directory: Path) -> Path:
    """Any platform's wheel will do: only its Python files are read."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            command += ["--no-deps", "--only-binary=:all:", "--retries", "1", "--timeout", "15"]
            command += ["--python-version", "3.11", "--abi", "cp311", "--platform", "manylinux_2_34_x86_64"]
            command += ["--dest", scratch, f"sglang=={version}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            fetched = list(Path(scratch).glob("*.whl"))
            if done.returncode != 0 or not fetched:
                reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
                raise WheelUnavailable(f"pip could not fetch sglang {version}: {reason}")
            return fetched[0].replace(directory / fetched[0].name)  # whole or not at all
    except (OSError, subprocess.SubprocessError) as error:
        raise WheelUnavailable(f"sglang {version} could not be put into {directory}: {error}") from None
