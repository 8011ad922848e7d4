"""Runs in vLLM's interpreter, by the program there."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.vllm_policies.policies import Policy
from bench.vllm_policies.setups import SetUp, TinySetUp, virtual_settings
from bench.vllm_python import environment


class RunFailedError(RuntimeError):
    """A run that did not come to its end; the message names it, with the last of what was printed."""


@dataclass(frozen=True)
class Run:
    """One batch under one policy: on made-up outputs, or on a tiny model for a `TinySetUp`."""

    setup: SetUp | TinySetUp
    model: str
    policy: Policy
    seed: int = 0
    enable_prefix_caching: bool = True

    def __str__(self) -> str:
        return f"{self.policy.title}, {self.setup.name}, {self.model}"

    @property
    def is_whole(self) -> bool:
        """Whether a model is run, and not only vLLM's scheduler."""
        return isinstance(self.setup, TinySetUp)

    def job(self) -> dict[str, Any]:
        """For the program."""
        setup = self.setup
        if isinstance(setup, TinySetUp):
            settings: dict[str, Any] = {
                "model": self.model,
                "blocks": setup.blocks[self.model],
                "max_num_seqs": setup.max_num_seqs,
            }
            concurrency = setup.samples
        else:
            settings = virtual_settings(self.model, setup)
            concurrency = setup.sample_concurrency
        settings |= self.policy.settings()
        settings["enable_prefix_caching"] = self.enable_prefix_caching
        return {
            "engine": "model" if self.is_whole else "virtual",
            "settings": settings,
            "trajectories": msgspec.to_builtins(setup.trajectories(self.seed)[: setup.samples]),
            "sample_concurrency": concurrency,
            "seed": self.seed,
        }


def carry_out(python: str, groups: Sequence[Sequence[Run]]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """The runs in order with their results, each group's in a process of its own. Raises RunFailedError."""
    command = [python, "-m", "bench.vllm_policies.program"]
    with tempfile.TemporaryFile("w+") as jobs, tempfile.TemporaryFile() as log:
        for group in groups:
            jobs.write(json.dumps([run.job() for run in group]) + "\n")
        jobs.seek(0)
        process = subprocess.Popen(
            command,
            stdin=jobs,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(),
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            for run in (run for group in groups for run in group):
                line = process.stdout.readline()
                outcome: dict[str, Any] = json.loads(line or b"{}")
                if "result" not in outcome:
                    error = outcome.get("error") or f"the program ended with {process.wait()}"
                    raise RunFailedError(f"{run}: {error} (it said: ... {_last_words(log.fileno())})")
                yield run, outcome["result"]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.stdout.close()
            process.wait()


def _last_words(log: int) -> str:
    size = os.fstat(log).st_size
    text = os.pread(log, 2_000, max(0, size - 2_000)).decode(errors="replace")
    return " ".join(text.split())
