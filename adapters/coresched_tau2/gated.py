"""tau2's simulations with a sample around each, and stages around tool calls and the simulated user."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from coresched_harness.held import held
from coresched_harness.run import Labels, say
from coresched_harness.waits import waits_of
from tau2.orchestrator.full_duplex_orchestrator import FullDuplexOrchestrator
from tau2.runner import batch, controller

from coresched.client.gate import Gate, sample_in_scope
from coresched_tau2.calls import AGENT, USER, Calls, calling


class Gated:
    """The gate in front of tau2's functions of the same names."""

    def __init__(self, gate: Gate, labels: Labels) -> None:
        self._gate = gate
        self._labels = labels
        self._said = False
        self._run_single_task = batch.run_single_task
        self._build_orchestrator = batch.build_orchestrator

    @contextmanager
    def installed(self) -> Iterator[None]:
        """tau2's modules use these functions for the block."""
        batch.run_single_task = self.run_single_task
        batch.build_orchestrator = self.build_orchestrator
        controller.subprocess = _Processes()
        try:
            with Calls().installed():
                yield
        finally:
            batch.run_single_task = self._run_single_task
            batch.build_orchestrator = self._build_orchestrator
            controller.subprocess = subprocess

    def run_single_task(self, config: Any, task: Any, **options: Any) -> Any:
        """One attempt at a task, which is a sample: its simulation, with the sample's waits in `info`."""
        with held(partial(self._gate.sample, self._labels.of(str(task.id)))) as sample:
            simulation = self._run_single_task(config, task, **options)
            simulation.info = {**(simulation.info or {}), "coresched": waits_of(sample)}
            return simulation

    def build_orchestrator(self, config: Any, task: Any, **options: Any) -> Any:
        """The task's orchestrator, whose steps are turns of its agent and stages of all others."""
        orchestrator = self._build_orchestrator(config, task, **options)
        if isinstance(orchestrator, FullDuplexOrchestrator):
            if not self._said:
                self._said = True
                say("warning: a full-duplex run has no turns and stages; only its admission is gated")
            return orchestrator
        agent, user = orchestrator.agent, orchestrator.user
        agent.generate_next_message = partial(_as_agent, agent.generate_next_message)
        user.generate_next_message = partial(_as_stage, orchestrator, user.generate_next_message)
        orchestrator._execute_tool_calls = partial(_as_stage, orchestrator, orchestrator._execute_tool_calls)
        return orchestrator


def _as_agent(generate: Callable[..., Any], *arguments: Any) -> Any:
    with calling(AGENT):
        return generate(*arguments)


def _as_stage(orchestrator: Any, job: Callable[..., Any], *arguments: Any) -> Any:
    """The tool calls of a message, or the user's answer. The wait is added to tau2's --timeout."""
    sample = sample_in_scope()
    if sample is None:
        return job(*arguments)
    with held(sample.environment) as stage, calling(USER):
        if orchestrator.timeout is not None:
            orchestrator.timeout += stage.queue_s
        return job(*arguments)


class _Processes:
    """`subprocess` for tau2's controller: the workers that it starts are this adapter's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: list[str], **options: Any) -> Any:
        if command[1:3] == ["-m", "tau2.runner.worker"]:
            command = [command[0], "-m", "coresched_tau2", "worker", *command[3:]]
        return subprocess.Popen(command, **options)
