"""Whether the installed vLLM takes this product's schedulers; found out in a process that loads vLLM."""

import os
import subprocess
import sys
from dataclasses import dataclass

import msgspec

PLUGINS = "vllm.general_plugins"
PLUGIN = "coresched"
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class VllmAdapter:
    """What was found; the adapter lacks functions and fields that it needs and this vLLM has not."""

    version: str
    tested: bool
    tested_versions: tuple[str, ...]
    schedulers: tuple[str, ...]
    """Their names for --scheduler-cls."""
    discovered: bool
    """Whether vLLM finds the plugin among the installed entry points."""
    lacks: tuple[str, ...]


def inspect_here() -> VllmAdapter:
    """Load vLLM's scheduler into this process. Raises what the import of a broken vLLM raises."""
    from importlib import import_module
    from importlib.metadata import entry_points

    from coresched_vllm.compatibility import TESTED_VERSIONS, is_tested, missing, vllm_version
    from coresched_vllm.names import SCHEDULERS

    import_module("vllm.v1.core.sched.scheduler")
    version = vllm_version()
    return VllmAdapter(
        version=version,
        tested=is_tested(version),
        tested_versions=tuple(TESTED_VERSIONS),
        schedulers=SCHEDULERS,
        discovered=bool(entry_points(group=PLUGINS, name=PLUGIN)),
        lacks=tuple(missing()),
    )


def inspect_vllm() -> VllmAdapter | str:
    """What another process of this interpreter finds, or the line that it ended with."""
    command = [sys.executable, "-m", "coresched.cli.vllm_adapter"]
    quiet = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, env=quiet, check=False
        )
    except subprocess.TimeoutExpired:
        return f"vLLM was not loaded within {TIMEOUT_S:g} s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=VllmAdapter)


if __name__ == "__main__":
    print(msgspec.json.encode(inspect_here()).decode())
