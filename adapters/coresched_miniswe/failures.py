"""A failure of the gate is no result of a task: it ends mini-swe-agent's benchmark runner.

The runner makes a result of whatever Exception a task raises, and would leave out the task the next time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coresched.client.errors import BatchClosedError, ServiceError
from coresched.errors import InputError
from coresched_miniswe.runner import outputs_of_runner, task_of_runner

GATE_FAILURES = (BatchClosedError, ServiceError, InputError)
"""None of them will pass by itself."""

_failed: set[str] = set()  # instances


@contextmanager
def gate_failures_end_the_run() -> Iterator[None]:
    """In a thread of the runner, one of GATE_FAILURES becomes a SystemExit, which the runner lets through."""
    try:
        yield
    except GATE_FAILURES as error:
        task = task_of_runner()
        if not task.ends or task.instance_id is None:
            raise
        _failed.add(task.instance_id)
        raise SystemExit(
            f"coresched: error: {error}; the same command goes on with the instances that have no result yet"
        ) from error


def forget_result(instance_id: str) -> None:
    """Of an instance whose run the gate failed; the runner has written one by now that says nothing."""
    if instance_id not in _failed:
        return
    _failed.discard(instance_id)
    outputs = outputs_of_runner()
    if outputs is None:
        return
    from minisweagent.run.benchmarks.swebench import remove_from_preds_file

    remove_from_preds_file(outputs / "preds.json", instance_id)
    (outputs / instance_id / f"{instance_id}.traj.json").unlink(missing_ok=True)
