"""Runs in SGLang's interpreter, each in a process of its own."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from bench import sglang_python
from bench.sglang_policies.models import write_model
from bench.sglang_policies.policies import Policy
from bench.sglang_policies.setups import SetUp
from coresched.errors import InputError

AT_ONCE = 2

Job = dict[str, Any]
"""A `coresched_simdevice.virtual.job.Job` in JSON's types."""
Key = TypeVar("Key", bound=Hashable)

DEVICE = {
    "CORESCHED_SIMDEVICE": "1",
    "CORESCHED_SIMDEVICE_MEMORY": "80GiB",
    "CORESCHED_SIMDEVICE_WEIGHTS": "50GiB",
}


class RunFailedError(RuntimeError):
    """A run that did not come to its end; the message has the last of what it printed."""


@dataclass(frozen=True)
class Run:
    """One batch under one policy."""

    setup: SetUp
    model: str
    policy: Policy
    seed: int = 0
    charge_scheduler: bool = False

    def __str__(self) -> str:
        return f"{self.policy.title}, {self.setup.name}, {self.model}"

    def job(self, models: Path) -> Job:
        """For a `Worker`. ``models`` is a folder to write to."""
        return {
            "server_args": {
                **self.setup.server_args(),
                "model_path": str(write_model(self.model, models)),
                "schedule_policy": self.policy.name,
            },
            "trajectories": msgspec.to_builtins(self.setup.trajectories(self.seed)),
            "settings": {"sample_concurrency": self.setup.sample_concurrency, "seed": self.seed},
            "environment": self.policy.environment(),
            "charge_scheduler": self.charge_scheduler,
        }


def sglang_version(python: str) -> str:
    """SGLang's version in that interpreter's environment. Raises InputError where it cannot be used."""
    probe = (
        "import msgspec, coresched.core, coresched_simdevice, importlib.metadata as metadata\n"
        "plugins = {each.name for each in metadata.entry_points(group='sglang.srt.plugins')}\n"
        "if not plugins >= {'coresched', 'coresched-simdevice'}:\n"
        "    raise SystemExit('coresched is not installed')\n"
        "print(metadata.version('sglang'))"
    )
    try:
        done = subprocess.run(
            [python, "-c", probe], capture_output=True, text=True, env=environment(), timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"--sglang-python {python!r} cannot be run: {error}") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it ended without a word"]
        raise InputError(
            f"--sglang-python {python!r}: {said[-1]}; give the Python of an environment that has sglang "
            "and coresched"
        )
    return done.stdout.strip()


def environment() -> dict[str, str]:
    """Of the processes: that of SGLang's interpreter, with the simulated device."""
    return {**sglang_python.environment(), **DEVICE}


class Worker:
    """A process in SGLang's interpreter that carries out jobs, one after the other.

    ``python`` is the interpreter's path. To be used as a context; the process ends with it.
    """

    def __init__(self, python: str) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by __exit__
        self._process = subprocess.Popen(
            [python, "-m", "coresched_simdevice.virtual"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment(),
            start_new_session=True,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        # With the job that it may be carrying out.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._log.close()

    def _end(self) -> str:
        code = self._process.wait()
        return f"the process was ended by signal {-code}" if code < 0 else f"the process ended with {code}"

    def carry_out(self, job: Job) -> dict[str, Any]:
        """The job's result, a `coresched_simdevice.virtual.batch.BatchResult`. Raises RunFailedError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        outcome: dict[str, Any] = json.loads(line) if line else {"error": self._end()}
        if "result" not in outcome:
            self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, self._log.tell() - 2000))
            said = " ".join(self._log.read().decode(errors="replace").split())
            raise RunFailedError(f"{outcome['error']} (it said: ... {said})")
        result: dict[str, Any] = outcome["result"]
        return result


def carry_out_all(python: str, jobs: Mapping[Key, Job]) -> Iterator[tuple[Key, dict[str, Any]]]:
    """Results as they come, of two processes. Raises RunFailedError naming the job's key."""
    with ExitStack() as stack:
        idle: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(min(AT_ONCE, len(jobs))):
            idle.put(stack.enter_context(Worker(python)))

        def carry_out(job: Job) -> dict[str, Any]:
            worker = idle.get()
            try:
                return worker.carry_out(job)
            finally:
                idle.put(worker)

        pool = ThreadPoolExecutor(AT_ONCE)
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        running = {pool.submit(carry_out, job): key for key, job in jobs.items()}
        for done in as_completed(running):
            try:
                yield running[done], done.result()
            except RunFailedError as error:
                raise RunFailedError(f"{running[done]}: {error}") from None
