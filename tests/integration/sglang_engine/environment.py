"""A Python with the real SGLang, on the CPU, and this checkout's coresched: installed once, kept, and shared.

The engine, 2.1 GB, lies in the user's cache directory under a name made of its list of packages. Each
checkout adds an environment of its own to it, in its build/ folder, with the checkout on the path and its
entry points.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "",
}
"""For every process of the engine: nothing is fetched; one thread, since more wait for each other; and what
Python compiled is kept, for compiling the engine's 4,000 modules takes longer than most tests."""

WHAT_TESTS_IMPORT = "import sglang.srt.entrypoints.http_server, sglang.srt.models.registry"


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
    with _locked(engine.with_name(f"{engine.name}.lock")):
        if not _runs(engine) and (reason := _install_engine(python, engine)):
            return reason
    own = CHECKOUT / "build" / "sglang-engine"
    with _locked(own.with_name(f"{own.name}.lock")):
        own_python = _add_checkout(python, engine, own)
    with _locked(engine.with_name(f"{engine.name}.lock")):
        _compile_once(own_python, engine / "compiled")
    return own_python


def _as_it_is(python: Path) -> Path:
    found = _output(python, "-c", "import coresched, sglang; print(coresched.__file__, sglang.__version__)")
    expected = f"{CHECKOUT / 'coresched' / '__init__.py'} {ENGINE_VERSION}"
    if found.split("\n")[-1] != expected:
        pytest.fail(f"{INTERPRETER_VARIABLE}={python} has {found!r}, not {expected!r}", pytrace=False)
    return python


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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


def _compile_once(python: Path, done: Path) -> None:
    """Here and not in the first tests, of which several would compile the same beside each other."""
    if not done.exists():
        _output(python, "-c", WHAT_TESTS_IMPORT)
        done.touch()


def _output(*command: str | Path) -> str:
    done = _run(*command)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr[-4000:]}", pytrace=False)
    return done.stdout.strip()


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **OFFLINE}, check=False)
