"""How a trajectory begins: which gate, by which name, and what the user is told once."""

from __future__ import annotations

import threading
from typing import Any

from coresched_harness.waits import too_few_samples

from coresched.client.gate import Gate, process_gate
from coresched_miniswe.runner import Task, threads_of_pool
from coresched_miniswe.trajectories import Trajectory, logger, random_name

_lock = threading.Lock()
_told: set[str] = set()
_pool_seen = threading.Event()
_by_instance: dict[str, Trajectory] = {}  # those whose end a runner will tell


def gate_or_warning() -> Gate | None:
    """The process's gate. Without one everything runs as if it were not gated, and the log says so."""
    gate = process_gate()
    if gate is None:
        warn_once(
            "nothing is gated: set CORESCHED_SAMPLE_CONCURRENCY (and CORESCHED_ENVIRONMENT_CONCURRENCY), "
            "or CORESCHED_SERVICE and CORESCHED_BATCH"
        )
    return gate


def begin(gate: Gate, task: Task, name: str | None = None) -> Trajectory:
    """An admitted trajectory, under `name`, the runner's task or a random name."""
    _warn_of_few_threads(gate)
    trajectory = Trajectory(gate, name or task.instance_id or random_name())
    if task.ends and task.instance_id is not None:
        trajectory.ended_by_runner = True
        _by_instance[task.instance_id] = trajectory
    return trajectory


def _warn_of_few_threads(gate: Gate) -> None:
    """Looked at once: reading the frame of a pool's thread keeps its task alive on older Pythons."""
    if _pool_seen.is_set():
        return
    _pool_seen.set()
    threads = threads_of_pool()
    if threads is not None and (text := too_few_samples(gate, "-w", threads)):
        warn_once(text)


def instance_ended(instance_id: str) -> None:
    """A runner has told that it is through with an instance."""
    trajectory = _by_instance.pop(instance_id, None)
    if trajectory is not None:
        trajectory.end(trajectory.failure)


def warn_once(text: str) -> None:
    """In the harness's log, and only at the first time in this process."""
    with _lock:
        if text in _told:
            return
        _told.add(text)
    logger.warning(text)


def merged_info(trajectory: Trajectory | None) -> dict[str, Any]:
    """The part of a trajectory file that tells what the gate did; nothing for a trajectory that was none."""
    return {} if trajectory is None else {"info": {"coresched": trajectory.info()}}
