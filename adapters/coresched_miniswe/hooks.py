"""Where a run begins and ends: `DefaultAgent.run`, and the progress manager of the benchmark runners.

The runners choose the agent's class themselves, and submit their work before any class of ours is imported;
these two methods are looked up at each call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from minisweagent.agents.default import DefaultAgent
from minisweagent.run.benchmarks.utils.batch_progress import RunBatchProgressManager

from coresched_miniswe.beginning import begin, gate_or_warning, instance_ended
from coresched_miniswe.environment import GatedEnvironment
from coresched_miniswe.failures import forget_result, gate_failures_end_the_run
from coresched_miniswe.model import GatedModel
from coresched_miniswe.runner import task_of_runner
from coresched_miniswe.trajectories import current_trajectory, entered

_HOOKED = "_coresched_hooked"


def hook_agents() -> None:
    """Once in a process. Agents whose environment and model are not gated run as ever."""
    _wrap(DefaultAgent, "run", _run)
    _wrap(RunBatchProgressManager, "on_instance_end", _on_instance_end)


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    inner = getattr(owner, name)
    if hasattr(inner, _HOOKED):
        return

    @functools.wraps(inner)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        return wrapper(functools.partial(inner, self), self, *args, **options)

    setattr(wrapped, _HOOKED, True)
    setattr(owner, name, wrapped)


def _run(run: Callable[..., Any], agent: Any, *args: Any, **options: Any) -> Any:
    """A run inside another one, such as a sub-agent's, belongs to its trajectory."""
    gated = isinstance(agent.env, GatedEnvironment) or isinstance(agent.model, GatedModel)
    if not gated or current_trajectory() is not None:
        return run(*args, **options)
    with gate_failures_end_the_run():
        return _gated_run(run, agent, *args, **options)


def _gated_run(run: Callable[..., Any], agent: Any, *args: Any, **options: Any) -> Any:
    gate = gate_or_warning()
    if gate is None:
        return run(*args, **options)
    trajectory = agent.env.open_trajectory() if isinstance(agent.env, GatedEnvironment) else None
    waited = trajectory is None
    if trajectory is None:
        named = options.get("instance_id") or getattr(agent, "instance_id", None)
        trajectory = begin(gate, task_of_runner(), str(named) if named else None)
    trajectory.run_by(agent, waited)
    if isinstance(agent.env, GatedEnvironment):
        agent.env.run_in(trajectory)
    try:
        with entered(trajectory):
            return run(*args, **options)
    except BaseException as error:
        trajectory.failure = type(error)
        raise
    finally:
        if not trajectory.ended_by_runner:
            trajectory.end(trajectory.failure)


def _on_instance_end(told: Callable[..., Any], _: Any, instance_id: str, *args: Any, **options: Any) -> Any:
    """The runner has written the trajectory, and drops the environment next."""
    try:
        return told(instance_id, *args, **options)
    finally:
        forget_result(instance_id)
        instance_ended(instance_id)
