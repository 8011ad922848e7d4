"""The distributions as a user gets them: built from the tracked files, installed, run elsewhere."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from interpreters import find_interpreter

CHECKOUT = Path(__file__).parents[2]
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
OLDEST = "3.10"
OTHER_PYTHONS = [version for version in (OLDEST, "3.12", "3.13") if version != RUNNING]

pytestmark = pytest.mark.packaging


def run(*command: str | Path, cwd: Path) -> str:
    # Without PYTHONPATH and the like, which would let the checkout stand in for what is missing.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def interpreter(version: str) -> Path:
    """A Python of this version that can make environments and compile; else the test is skipped."""
    if found := find_interpreter(version):
        return found
    pytest.skip(f"no Python {version} with venv and headers on PATH or in ~/.pyenv/versions")


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (CHECKOUT / ".git").exists():
        pytest.skip("the tracked files are known only in a git checkout")
    folder = tmp_path_factory.mktemp("package")
    for name in run("git", "ls-files", "-z", cwd=CHECKOUT).split("\0")[:-1]:
        if (CHECKOUT / name).exists():
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, folder / "tree" / name)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder / "dist", "tree", cwd=folder)
    (built,) = (folder / "dist").iterdir()
    return built


def names_in(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def wheel_of(sdist: Path, python: Path, folder: Path) -> Path:
    run(python, "-m", "venv", folder / "builder", cwd=folder)
    pip = (folder / "builder" / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", folder / "wheel", sdist, cwd=folder)
    shutil.rmtree(folder / "builder")  # pytest keeps the folders of its last runs
    (built,) = (folder / "wheel").iterdir()
    return built


def floors(wheel: Path) -> list[str]:
    """What the wheel requires, each in the oldest version that it allows."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    required = re.findall(r"^Requires-Dist: ([\w-]+)>=([\d.]+)$", metadata, re.MULTILINE)
    assert {"grpcio", "protobuf", "mmh3"} <= {name for name, _ in required}
    return [f"{name}=={version}" for name, version in required]


def install_and_run(wheel: Path, python: Path, folder: Path, *versions: str) -> None:
    run(python, "-m", "venv", folder / "user", cwd=folder)
    installed = folder / "user" / "bin"
    pip = (installed / "python", "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", wheel, *versions, cwd=folder)
    modules = "coresched, coresched.sync, coresched.service.server, coresched.v1.router_pb2_grpc"
    run(installed / "python", "-c", f"import {modules}", cwd=folder)
    runs = json.loads(run(installed / "coresched", "demo", "--json", cwd=folder))["runs"]
    assert runs[-1]["name"] == "coordinated"
    shutil.rmtree(folder / "user")


def test_the_sdist_has_the_sources_and_nothing_generated(sdist: Path) -> None:
    names = names_in(sdist)
    assert {"setup.py", "proto/coresched/v1/router.proto", "coresched/core/ring.pyx", "LICENSE"} <= names
    assert not [name for name in names if "_pb2" in name or name.endswith((".c", ".cpp", ".so"))]


def test_the_wheel_is_complete_installs_and_runs(sdist: Path, tmp_path: Path) -> None:
    wheel = wheel_of(sdist, Path(sys.executable), tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "coresched/py.typed",
        "coresched/core/ring.pyi",
        "coresched/trajectory/workloads/swe-demo.jsonl.gz",
        "coresched/lab/simulator/models/h20-tp4-hybrid-tight.json",
        "coresched/v1/router_pb2.py",
        "coresched/v1/router_pb2.pyi",
        "coresched/v1/router_pb2_grpc.py",
    } <= names
    assert not [name for name in names if name.endswith((".c", ".cpp", ".pyx"))]
    packages = {name.split("/")[0].split("-")[0] for name in names}
    assert packages == {
        "coresched",
        "coresched_engine",
        "coresched_sglang",
        "coresched_simdevice",
        "coresched_vllm",
    }
    compiled = {name.split(".")[0] for name in names if name.endswith(".so")}
    sources = {
        str(path.relative_to(CHECKOUT).with_suffix("")) for path in CHECKOUT.glob("coresched/**/*.pyx")
    }
    assert compiled == sources
    install_and_run(wheel, Path(sys.executable), tmp_path)


@pytest.mark.parametrize("version", OTHER_PYTHONS)
def test_it_builds_installs_and_runs_on(version: str, sdist: Path, tmp_path: Path) -> None:
    """On the oldest Python with the oldest versions of what it requires."""
    python = interpreter(version)
    wheel = wheel_of(sdist, python, tmp_path)
    install_and_run(wheel, python, tmp_path, *(floors(wheel) if version == OLDEST else ()))
