"""Each run in a process of its own, in SGLang's interpreter."""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.sglang_policies.models import write_model
from bench.sglang_policies.policies import Policy
from bench.sglang_policies.setups import SetUp
from coresched.errors import InputError

AT_ONCE = 2
LIMIT_S = 900.0

DEVICE = {
    "CORESCHED_SIMDEVICE": "1",
    "CORESCHED_SIMDEVICE_MEMORY": "80GiB",
    "CORESCHED_SIMDEVICE_WEIGHTS": "50GiB",
}


class RunFailedError(RuntimeError):
    """A run that did not come to its end; the message is the last of what it printed."""


@dataclass(frozen=True)
class Run:
    """One batch under one policy."""

    setup: SetUp
    model: str
    policy: Policy
    seed: int = 0
    charge_scheduler: bool = False

    def job(self, models: Path) -> dict[str, Any]:
        """What `python -m coresched_simdevice.virtual` reads. ``models`` is a folder to write to."""
        return {
            "server_args": {
                **self.setup.server_args(),
                "model_path": str(write_model(self.model, models)),
                "schedule_policy": self.policy.name,
            },
            "trajectories": msgspec.to_builtins(self.setup.trajectories(self.seed)),
            "settings": {"sample_concurrency": self.setup.sample_concurrency, "seed": self.seed},
            "charge_scheduler": self.charge_scheduler,
        }


def sglang_version(python: str) -> str:
    """SGLang's version in that interpreter's environment. Raises InputError where it cannot be used."""
    probe = (
        "import importlib.metadata as metadata, coresched_simdevice.virtual, coresched_sglang\n"
        "print(metadata.version('sglang'))"
    )
    try:
        done = subprocess.run([python, "-c", probe], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"--sglang-python {python!r} cannot be run: {error}") from None
    if done.returncode:
        raise InputError(
            f"--sglang-python {python!r}: {done.stderr.strip().splitlines()[-1]}; give the Python of an "
            "environment that has sglang and coresched"
        )
    return done.stdout.strip()


def run_one(python: str, run: Run, models: Path) -> dict[str, Any]:
    """The result of a run, a `coresched_simdevice.virtual.batch.BatchResult` as a dict."""
    return run_job(python, run.job(models), run.policy.environment())


def run_job(python: str, job: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Hand a job to `python -m coresched_simdevice.virtual`. Raises RunFailedError."""
    try:
        done = subprocess.run(
            [python, "-m", "coresched_simdevice.virtual"],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            env={**os.environ, **DEVICE, **environment},
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise RunFailedError(f"no result after {LIMIT_S:g} s") from None
    if done.returncode:
        raise RunFailedError(" ".join(done.stderr[-2000:].split()))
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run_all(python: str, runs: Iterable[Run], models: Path) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Results as they come, two runs at a time. Raises RunFailedError naming the run."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(run_one, python, run, models): run for run in runs}
        try:
            for done in as_completed(running):
                run = running[done]
                try:
                    yield run, done.result()
                except RunFailedError as error:
                    raise RunFailedError(
                        f"{run.policy.title}, {run.setup.name}, {run.model}: {error}"
                    ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
