"""Runs in vLLM's environment: `python -m bench.vllm_policies.program`.

Reads lines of JSON, each a list of runs; prints a line of JSON for each run, in order: ``{"result": ...}``,
or ``{"error": ...}``, which is its line's last. Each line has a process of its own, a fork of this one, which
has imported vLLM; the engines of a line have the same model, so that vLLM loads its parts once.

A run is an object with ``engine`` ("virtual" or "model"), ``settings`` of it, ``trajectories``,
``sample_concurrency`` and ``seed``.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
from coresched_vllm.virtual.boot import ENVIRONMENT, Settings
from coresched_vllm.virtual.engine import VirtualEngine

from bench.vllm_policies.batch import run_batch
from bench.vllm_policies.model_engine import ModelEngine, ModelSettings
from coresched.trajectory.schema import Trajectory


def outcomes(runs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for run in runs:
        with tempfile.TemporaryDirectory() as folder:
            trajectories = msgspec.convert(run["trajectories"], list[Trajectory])
            engine: Any
            if run["engine"] == "virtual":
                engine = VirtualEngine(Path(folder), Settings(**run["settings"]))
            else:
                engine = ModelEngine(Path(folder), ModelSettings(**run["settings"]))
            yield run_batch(engine, trajectories, run["sample_concurrency"], run["seed"]).as_json()


def main() -> int:
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM logs there
    os.environ.update(ENVIRONMENT)
    try:
        import transformers  # noqa: F401
        import vllm.entrypoints.llm
        import vllm.v1.core.sched.async_scheduler
        import vllm.v1.structured_output
        import vllm.v1.worker.cpu_worker  # noqa: F401
    except ImportError as error:
        put(lines, error=f"{sys.executable!r} must have vllm: {error}")
        return 1
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                for outcome in outcomes(json.loads(line)):
                    put(lines, result=outcome)
            except BaseException as error:
                put(lines, error=f"{type(error).__name__}: {error}")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            put(lines, error=f"the process ended with status {status}")
    return 0


def put(lines: IO[str], **line: object) -> None:
    lines.write(json.dumps(line) + "\n")
    lines.flush()


if __name__ == "__main__":
    sys.exit(main())
