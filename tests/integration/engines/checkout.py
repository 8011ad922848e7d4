"""Makes this checkout's coresched whole for the engine's Python, which runs this file.

    python checkout.py CHECKOUT TOOLS

writes a dist-info with pyproject.toml's entry points beside the interpreter's packages, since engines find
their plugins by it; installs required packages that are missing; and compiles the extension modules that this
Python's ABI lacks, or that are older than their sources. TOOLS is a folder for what compiling needs. Nothing
is done twice: with nothing changed it takes a second.
"""

import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

import tomllib
from packaging.requirements import Requirement

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")


def write_metadata(project: dict[str, Any]) -> None:
    name, version = project["name"], project["version"]
    folder = Path(sysconfig.get_path("purelib"), f"{name}-{version}.dist-info")
    for other in folder.parent.glob(f"{name}-*.dist-info"):
        if other != folder:
            for file in other.iterdir():
                file.unlink()
            other.rmdir()
    folder.mkdir(exist_ok=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    sections = (
        "\n".join([f"[{group}]", *(f"{name} = {target}" for name, target in points.items())])
        for group, points in groups.items()
    )
    (folder / "entry_points.txt").write_text("\n\n".join(sections) + "\n")


def met(requirement: Requirement) -> bool:
    if requirement.marker and not requirement.marker.evaluate():
        return True
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def stale(checkout: Path) -> list[Path]:
    """The .pyx files whose extension module, for this Python, is missing or older than what it is made of."""
    shared = max(path.stat().st_mtime for path in (checkout / "coresched").rglob("*.pxd"))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    found = []
    for source in sorted((checkout / "coresched").rglob("*.pyx")):
        module = source.with_suffix(suffix)
        if not module.exists() or module.stat().st_mtime < max(shared, source.stat().st_mtime):
            found.append(source)
    return found


def main(checkout: Path, tools: Path) -> None:
    declared = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    write_metadata(declared["project"])
    missing = [text for text in declared["project"]["dependencies"] if not met(Requirement(text))]
    if missing:
        subprocess.run([*PIP, *missing], check=True)
    if stale(checkout):
        if not tools.exists():
            subprocess.run([*PIP, "--target", tools, *declared["build-system"]["requires"]], check=True)
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(command, cwd=checkout, env={**os.environ, "PYTHONPATH": str(tools)}, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
