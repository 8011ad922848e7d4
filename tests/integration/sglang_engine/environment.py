"""A Python with the real SGLang, on the CPU, and this checkout's coresched: installed once, kept, and shared.

The engine, 2.1 GB, lies in the user's cache directory under a name made of its list of packages. Where a
new list is installed, engines of other lists go, unless a process of these tests has one in use. Each
checkout adds an environment of its own to the engine, in its build/ folder, with the checkout on the path and
its entry points.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from interpreters import find_interpreter

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[2]
REQUIREMENTS = HERE / "requirements.txt"
STUBS = HERE / "stubs"

INTERPRETER_VARIABLE = "CORESCHED_SGLANG_PYTHON"
"""Names an interpreter that has SGLang and coresched with its entry points; it is used as it is."""

ENGINE_VERSION = "0.5.23"
PYTHON = "3.11"
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
"""For every process of the engine: nothing is fetched, and one thread, since more wait for each other."""


def engine_python() -> Path:
    """The interpreter. Skips the test where it cannot be had; fails where its installation does."""
    found = _python_or_reason()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@functools.cache
def _python_or_reason() -> Path | str:
    if chosen := os.environ.get(INTERPRETER_VARIABLE):
        return _as_it_is(Path(chosen))
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"the packages in {REQUIREMENTS.name} are for Linux on x86-64"
    python = find_interpreter(PYTHON)
    if python is None:
        return f"no Python {PYTHON} with venv and headers on PATH or in ~/.pyenv/versions"
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coresched"
    engine = cache / f"sglang-{ENGINE_VERSION}-{digest}"
    with _locked(_lock_of(engine)):
        if not _runs(engine):
            if reason := _install_engine(python, engine):
                return reason
            remove_other_engines(engine)
        use(engine)
    own = CHECKOUT / "build" / "sglang-engine"
    with _locked(own.with_name(f"{own.name}.lock")):
        return _add_checkout(python, engine, own)


def _as_it_is(python: Path) -> Path:
    found = _output(python, "-c", "import coresched, sglang; print(coresched.__file__, sglang.__version__)")
    expected = f"{CHECKOUT / 'coresched' / '__init__.py'} {ENGINE_VERSION}"
    if found.split("\n")[-1] != expected:
        pytest.fail(f"{INTERPRETER_VARIABLE}={python} has {found!r}, not {expected!r}", pytrace=False)
    return python


@contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Raises BlockingIOError where another process has the lock and this one shall not wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def _lock_of(engine: Path) -> Path:
    return engine.with_name(f"{engine.name}.lock")


def use(engine: Path) -> None:
    """Keep other processes from removing the engine until this process ends."""
    fcntl.flock(os.open(engine, os.O_RDONLY), fcntl.LOCK_SH)


def remove_other_engines(engine: Path) -> None:
    """Remove the engines beside this one, and what installations that were cut short left of them.

    Not those that a process uses, or is about to.
    """
    for folder in engine.parent.iterdir():
        found = re.fullmatch(r"(sglang-[\w.]+-[0-9a-f]{12})(\.unfinished)?", folder.name)
        if found is None or found[1] == engine.name or not folder.is_dir():
            continue
        with suppress(BlockingIOError), _locked(_lock_of(folder.with_name(found[1])), wait=False):
            handle = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(handle)


def _runs(environment: Path) -> bool:
    """False too where the Python that it was made from is gone."""
    python = environment / "bin" / "python"
    return python.exists() and subprocess.run([python, "-c", ""], check=False).returncode == 0


def _install_engine(python: Path, engine: Path) -> str | None:
    """Installs what requirements.txt lists; None, or the reason why it cannot be had here."""
    shutil.rmtree(engine, ignore_errors=True)
    scratch = engine.with_name(f"{engine.name}.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    _output(python, "-m", "venv", scratch)
    pip = (scratch / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    # Compiled files come with the first import, of the modules that are used.
    install = (*pip, "install", "--quiet", "--no-deps", "--no-compile", "-r", REQUIREMENTS)
    for index in ((), ("--extra-index-url", CPU_BUILDS)):
        done = _run(*install, *index)
        if done.returncode == 0:
            scratch.rename(engine)
            return None
    online = _run(*pip, "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest", scratch, "idna")
    shutil.rmtree(scratch)
    if online.returncode != 0:
        return f"pip reaches no registry: {online.stderr.strip().splitlines()[-1]}"
    problem = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("WARNING"))
    pytest.fail(f"SGLang {ENGINE_VERSION} could not be installed:\n{problem[-4000:]}", pytrace=False)


def _add_checkout(python: Path, engine: Path, own: Path) -> Path:
    """An environment on top of the engine's, for this checkout alone."""
    packages = Path("lib", f"python{PYTHON}", "site-packages")
    path_file = own / packages / "engine.pth"
    lines = (
        f"import site; site.addsitedir({str(engine / packages)!r})",
        str(CHECKOUT),
        str(CHECKOUT / "adapters"),
        str(STUBS),
    )
    text = "\n".join(lines) + "\n"
    if not (_runs(own) and path_file.exists() and path_file.read_text() == text):
        shutil.rmtree(own, ignore_errors=True)
        _output(python, "-m", "venv", "--without-pip", own)
        path_file.write_text(text)
    _output(own / "bin" / "python", HERE / "checkout.py", CHECKOUT, own / "tools")
    return own / "bin" / "python"


def _output(*command: str | Path) -> str:
    done = _run(*command)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr[-4000:]}", pytrace=False)
    return done.stdout.strip()


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **OFFLINE}, check=False)
