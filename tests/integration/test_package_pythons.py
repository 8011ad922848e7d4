"""The package on the Pythons that it names and these tests do not run on, built and installed by uv."""

import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from distributions import clean_environment, copy_tracked_files, try_installed
from interpreters import find_interpreter
from uv_command import run_uv

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
OLDEST = "3.10"
OTHER_PYTHONS = [version for version in (OLDEST, "3.12", "3.13") if version != RUNNING]
NOT_OPTIMISED = {"CXXFLAGS": "-O0 -g0"}
"""Compiles in a third of the time."""

pytestmark = pytest.mark.packaging


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ that Cython makes in it is the same for all Pythons, and made once."""
    return copy_tracked_files(tmp_path_factory.mktemp("package") / "tree")


def uv(*command: str | Path) -> None:
    done = run_uv(*command, environment={**clean_environment(), **NOT_OPTIMISED})
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def floors(wheel: Path) -> list[str]:
    """What the wheel requires, each in the oldest version that it allows."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    required = re.findall(r"^Requires-Dist: ([\w-]+)>=([\d.]+)$", metadata, re.MULTILINE)
    assert {"grpcio", "protobuf", "mmh3"} <= {name for name, _ in required}
    return [f"{name}=={version}" for name, version in required]


@pytest.mark.parametrize("version", OTHER_PYTHONS)
def test_it_builds_installs_and_runs_on(version: str, tree: Path, tmp_path: Path) -> None:
    """On the oldest Python with the oldest versions of what it requires."""
    python = find_interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} with venv and headers on PATH or in ~/.pyenv/versions")
    uv("build", "--wheel", "--python", python, "--out-dir", tmp_path / "wheel", tree)
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    uv("venv", "--python", python, tmp_path / "user")
    scripts = tmp_path / "user" / "bin"
    versions = floors(wheel) if version == OLDEST else ()
    uv("pip", "install", "--python", scripts / "python", wheel, *versions)
    try_installed(scripts, tmp_path)
    shutil.rmtree(tmp_path / "user")  # pytest keeps the folders of its last runs
