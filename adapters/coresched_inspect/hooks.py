"""Hooks of inspect: the gate is there before a run does any work, and what was waited for is written down."""

from __future__ import annotations

import functools

from inspect_ai._util.error import PrerequisiteError
from inspect_ai.hooks import Hooks, RunEnd, SampleAttemptEnd, SampleAttemptStart, TaskStart, hooks

from coresched.client.errors import ServiceError
from coresched.errors import InputError
from coresched_inspect import report
from coresched_inspect.activation import gate_of_evals
from coresched_inspect.samples import sample_of_context
from coresched_inspect.settings import warn_of_limits


class GateHooks(Hooks):  # type: ignore[misc]  # untyped where inspect is not installed
    """Without a gate they are not enabled."""

    def enabled(self) -> bool:
        """Asked before a run begins, and often: whatever is wrong with the gate ends the run here."""
        try:
            return gate_of_evals() is not None
        except (InputError, ServiceError, TypeError, ValueError) as error:
            raise PrerequisiteError(f"coresched: {error}") from error

    async def on_task_start(self, data: TaskStart) -> None:
        gate = gate_of_evals()
        if gate is not None:
            warn_of_limits(gate, data.spec, data.plan.config)

    async def on_sample_attempt_start(self, data: SampleAttemptStart) -> None:
        gated = sample_of_context()
        if gated is not None:
            gated.start()

    async def on_sample_attempt_end(self, data: SampleAttemptEnd) -> None:
        gated = sample_of_context()
        if gated is not None:
            gated.failed = data.error is not None

    async def on_run_end(self, data: RunEnd) -> None:
        gate = gate_of_evals()
        if gate is not None:
            report.show(data.run_id, gate)


@functools.cache
def register() -> None:
    """Make inspect call the hooks, once."""
    hooks(name="coresched", description="samples, turns and tool calls go through coresched's gate")(
        GateHooks
    )
