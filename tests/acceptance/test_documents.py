"""The documents against the tree they describe."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return listed.stdout.splitlines()


def test_architecture_lists_every_folder_that_exists_and_no_other() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    listed = set(re.findall(r"^\| `([^`]+)/` \|", text, flags=re.MULTILINE))
    python = {
        str(Path(name).parent) for name in tracked() if name.endswith((".py", ".pyx", ".proto", ".json"))
    }
    packages = {name for name in python if name.startswith(("coresched/", "adapters/", "proto/"))} | {
        "bench",
        "tests",
        "docs",
    }
    inside = {"coresched/trajectory/workloads"}  # named in its parent's row
    assert listed == packages - inside


def test_every_file_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `([^`]+)/` \|(.*)\|$", text, flags=re.MULTILINE)
    for folder, about in rows:
        for name in re.findall(r"`(\w+\.(?:pyx|py|sh))`", about):
            assert (ROOT / folder / name).exists(), f"{folder}/{name}"


def test_links_between_documents_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_no_file_is_a_monolith() -> None:
    for name in tracked():
        if name.startswith(("coresched/", "adapters/")) and name.endswith((".py", ".pyx")):
            lines = len((ROOT / name).read_text().splitlines())
            assert lines <= 400, f"{name} has {lines} lines"


def test_package_imports_point_one_way() -> None:
    may_import = {
        "core": set(),
        "recording": {"core"},
        "capacity": {"core", "trajectory"},
        "trajectory": {"core", "recording"},
        "batch": {"core"},
        "client": {"core", "batch", "recording"},
        "httpx": {"core", "client", "recording"},
        "service": {"core", "batch"},
        "gateway": {"core", "client", "recording"},
        "sidecar": {"core", "batch", "client", "gateway", "recording"},
        "lab": {"core", "batch", "capacity", "trajectory", "client", "recording"},
    }
    order = [*may_import, "cli"]
    may_import["cli"] = set(order)
    pattern = re.compile(r"^\s*(?:from|import|cimport)\s+coresched\.(\w+)", flags=re.MULTILINE)
    for name in tracked():
        parts = Path(name).parts
        if (
            parts[0] == "coresched"
            and len(parts) > 2
            and parts[1] in may_import
            and name.endswith((".py", ".pyx", ".pxd"))
        ):
            found = set(pattern.findall((ROOT / name).read_text())) & set(order)
            assert found <= may_import[parts[1]] | {parts[1]}, name


def test_the_capacity_pages_example_runs() -> None:
    (example,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "capacity.md").read_text(), flags=re.DOTALL
    )
    finished = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    assert "--max-mamba-cache-size" in finished.stdout
