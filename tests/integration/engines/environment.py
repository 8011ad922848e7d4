"""A Python with a real engine, on the CPU, and this checkout's coresched: installed once, kept, and shared.

The engine, 2 to 3.5 GB, lies in the user's cache directory under a name made of its list of packages. Where
a new list is installed, the engine's other lists go, unless a process of these tests has one in use. Each
checkout adds an environment of its own to the engine, in its build/ folder, with the checkout on the path and
its entry points.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from integration.engines.kept import lock_of, locked, remove_other_engines, use
from interpreters import find_interpreter
from uv_command import run_uv

CPU_BUILDS = "https://download.pytorch.org/whl/cpu"

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[2]

PYTHON = "3.11"
COMPILED_ONCE = {"PYTHONDONTWRITEBYTECODE": ""}
"""What Python compiled is kept: compiling an engine's thousands of modules takes longer than most tests."""


@dataclass(frozen=True)
class EngineEnvironment:
    """The environment of the engine that is imported as ``name``, in ``version``.

    ``requirements`` lists all its packages. ``paths`` are folders of what stands in for packages that it
    imports and does not need. ``variables`` are for all its processes. ``imports`` is a statement that
    imports what most tests do. The environment variable
    CORESCHED_<NAME>_PYTHON names another interpreter, which has the engine and this checkout's coresched with
    its entry points; it is used as it is.
    """

    name: str
    version: str
    requirements: Path
    paths: tuple[Path, ...]
    variables: Mapping[str, str] = field(hash=False)
    imports: str

    def python(self) -> Path:
        """The interpreter. Skips the test where it cannot be had; fails where its installation does."""
        found = _python_or_reason(self)
        if isinstance(found, str):
            pytest.skip(found)
        return found


@functools.cache
def _python_or_reason(engine: EngineEnvironment) -> Path | str:
    variable = f"CORESCHED_{engine.name.upper()}_PYTHON"
    if chosen := os.environ.get(variable):
        return _as_it_is(engine, Path(chosen), variable)
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"the packages in {engine.requirements} are for Linux on x86-64"
    python = find_interpreter(PYTHON)
    if python is None:
        return f"no Python {PYTHON} with venv and headers on PATH or in ~/.pyenv/versions"
    digest = hashlib.sha256(engine.requirements.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coresched"
    shared = cache / f"{engine.name}-{engine.version}-{digest}"
    with locked(lock_of(shared)):
        if not _runs(shared):
            if reason := _install(engine, python, shared):
                return reason
            remove_other_engines(shared)
        use(shared)
    own = CHECKOUT / "build" / f"{engine.name}-engine"
    with locked(lock_of(own)):
        own_python = _add_checkout(engine, python, shared, own)
    with locked(lock_of(shared)):
        _compile_once(engine, own_python, shared / "compiled")
    return own_python


def _as_it_is(engine: EngineEnvironment, python: Path, variable: str) -> Path:
    look = f"import coresched, {engine.name}; print(coresched.__file__, {engine.name}.__version__)"
    found = _output(python, "-c", look, variables=engine.variables)
    expected = f"{CHECKOUT / 'coresched' / '__init__.py'} {engine.version}"
    if found.split("\n")[-1] != expected:
        pytest.fail(f"{variable}={python} has {found!r}, not {expected!r}", pytrace=False)
    return python


def _runs(environment: Path) -> bool:
    """False too where the Python that it was made from is gone."""
    python = environment / "bin" / "python"
    return python.exists() and subprocess.run([python, "-c", ""], check=False).returncode == 0


def _install(engine: EngineEnvironment, python: Path, shared: Path) -> str | None:
    """Installs what the engine's list names; None, or the reason why it cannot be had here."""
    shutil.rmtree(shared, ignore_errors=True)
    scratch = shared.with_name(f"{shared.name}.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    _output(python, "-m", "venv", scratch)
    # What uv keeps lies in the same file system, so that installing a file is linking it.
    install = ("pip", "install", "--quiet", "--cache-dir", scratch / "uv-cache", "--no-deps")
    install += ("--python", scratch / "bin" / "python", "-r", engine.requirements)
    for index in ((), ("--index", CPU_BUILDS)):
        done = run_uv(*install, *index)
        if done.returncode == 0:
            shutil.rmtree(scratch / "uv-cache")
            scratch.rename(shared)
            return None
    pip = (scratch / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    online = _run(*pip, "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest", scratch, "idna")
    shutil.rmtree(scratch)
    if online.returncode != 0:
        return f"pip reaches no registry: {online.stderr.strip().splitlines()[-1]}"
    pytest.fail(
        f"{engine.name} {engine.version} could not be installed:\n{done.stderr[-4000:]}", pytrace=False
    )


def _add_checkout(engine: EngineEnvironment, python: Path, shared: Path, own: Path) -> Path:
    """An environment on top of the engine's, for this checkout alone."""
    packages = Path("lib", f"python{PYTHON}", "site-packages")
    path_file = own / packages / "engine.pth"
    lines = (
        f"import site; site.addsitedir({str(shared / packages)!r})",
        str(CHECKOUT),
        str(CHECKOUT / "adapters"),
        *map(str, engine.paths),
    )
    text = "\n".join(lines) + "\n"
    if not (_runs(own) and path_file.exists() and path_file.read_text() == text):
        shutil.rmtree(own, ignore_errors=True)
        _output(python, "-m", "venv", "--without-pip", own)
        path_file.write_text(text)
    _output(own / "bin" / "python", HERE / "checkout.py", CHECKOUT, own / "tools")
    return own / "bin" / "python"


def _compile_once(engine: EngineEnvironment, python: Path, done: Path) -> None:
    """Here and not in the first tests, of which several would compile the same beside each other."""
    if not done.exists():
        _output(python, "-c", engine.imports, variables=engine.variables)
        done.touch()


def _output(*command: str | Path, variables: Mapping[str, str] | None = None) -> str:
    done = _run(*command, variables=variables)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr[-4000:]}", pytrace=False)
    return done.stdout.strip()


def _run(
    *command: str | Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **(variables or {})}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
