"""What processes of vLLM's interpreter, which has an environment of its own, get from here."""

import subprocess

from bench import sglang_python
from coresched.errors import InputError

_PROBE = """
import vllm, coresched_vllm
from importlib import metadata
if "coresched" not in {each.name for each in metadata.entry_points(group="vllm.general_plugins")}:
    raise SystemExit("coresched is not installed")
print(vllm.__version__)
print(*(name for name in ("RoutingPrefix", "RoutingResidency") if hasattr(coresched_vllm, name)))
"""


def environment() -> dict[str, str]:
    """Variables: this checkout's code first; the engine in the process itself, on one thread."""
    return {
        **sglang_python.environment(),
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }


def vllm_version(python: str) -> tuple[str, tuple[str, ...]]:
    """vLLM's version in that interpreter's environment, and the dotted names of our schedulers that it has.

    Raises InputError where it cannot be used.
    """
    try:
        done = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, env=environment(), timeout=600
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"--vllm-python {python!r} cannot be run: {error}") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it ended without a word"]
        raise InputError(
            f"--vllm-python {python!r}: {said[-1]}; give the Python of an environment that has vllm and "
            "coresched"
        )
    version, schedulers = done.stdout.splitlines()[-2:]
    return version, tuple(f"coresched_vllm.{name}" for name in schedulers.split())
