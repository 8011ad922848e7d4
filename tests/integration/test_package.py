"""The distributions as a user gets them by pip: built from the tracked files, installed, run elsewhere."""

import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from distributions import CHECKOUT, copy_tracked_files, run, try_installed

pytestmark = pytest.mark.packaging


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    copy_tracked_files(folder / "tree")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder / "dist", "tree", cwd=folder)
    (built,) = (folder / "dist").iterdir()
    return built


def names_in(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_the_sdist_has_the_sources_and_nothing_generated(sdist: Path) -> None:
    names = names_in(sdist)
    assert {"setup.py", "proto/coresched/v1/router.proto", "coresched/core/ring.pyx", "LICENSE"} <= names
    beside_pyx = {name.removesuffix(".pyx") + ".cpp" for name in names if name.endswith(".pyx")}
    assert not beside_pyx & names
    assert not [name for name in names if "_pb2" in name or name.endswith((".c", ".so"))]
    assert [name for name in names if name.endswith(".cpp")] == ["bench/floor/floor.cpp"]


def test_the_wheel_is_complete_installs_and_runs(sdist: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "user", cwd=tmp_path)
    scripts = tmp_path / "user" / "bin"
    pip = (scripts / "python", "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path / "wheel", sdist, cwd=tmp_path)
    (wheel,) = (tmp_path / "wheel").iterdir()
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
        "coresched_envoy/wire_pb2.py",
    } <= names
    assert not [name for name in names if name.endswith((".c", ".cpp", ".pyx"))]
    packages = {name.split("/")[0].split("-")[0] for name in names}
    assert packages == {
        "coresched",
        "coresched_aibrix",
        "coresched_bfcl",
        "coresched_engine",
        "coresched_envoy",
        "coresched_harness",
        "coresched_inspect",
        "coresched_miniswe",
        "coresched_ray",
        "coresched_sglang",
        "coresched_simdevice",
        "coresched_smg",
        "coresched_tau2",
        "coresched_vllm",
    }
    compiled = {name.split(".")[0] for name in names if name.endswith(".so")}
    sources = {
        str(path.relative_to(CHECKOUT).with_suffix("")) for path in CHECKOUT.glob("coresched/**/*.pyx")
    }
    assert compiled == sources
    run(*pip, "install", wheel, cwd=tmp_path)
    try_installed(scripts, tmp_path)
    shutil.rmtree(tmp_path / "user")  # pytest keeps the folders of its last runs
