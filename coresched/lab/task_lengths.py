"""How long tasks took, from the trajectories of attempts at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean

from coresched.batch.history import Unit, task_of
from coresched.errors import InputError
from coresched.trajectory.schema import Trajectory


@dataclass
class _Attempts:
    completed: list[float] = field(default_factory=list)
    cut_short: list[float] = field(default_factory=list)


def lengths_by_task(trajectories: Iterable[Trajectory], unit: Unit) -> dict[str, float]:
    """The mean of a task's completed attempts; the longest of those that were cut short where none completed.

    An attempt whose context was given up and begun anew is as long as its parts together (`meta.part`; they
    follow one another). Raises InputError naming the trajectory where its length is not known in this unit.
    """
    attempts: dict[str, _Attempts] = {}
    for trajectory in trajectories:
        of_task = attempts.setdefault(task_of(trajectory.id), _Attempts())
        cut_short = trajectory.meta.get("completed") is False
        lengths = of_task.cut_short if cut_short else of_task.completed
        length = _LENGTHS[unit](trajectory)
        if "part" in trajectory.meta and lengths:
            lengths[-1] += length
        else:
            lengths.append(length)
    return {
        task: fmean(of_task.completed) if of_task.completed else max(of_task.cut_short)
        for task, of_task in attempts.items()
    }


def _seconds(trajectory: Trajectory) -> float:
    total = 0.0
    for number, turn in enumerate(trajectory.turns):
        stage_s = 0.0 if turn.env is None else turn.env.duration_s
        for name, seconds in (("infer_s", turn.infer_s), ("env.duration_s", stage_s)):
            if seconds is None:
                raise InputError(
                    f"trajectory {trajectory.id!r}: turns[{number}].{name} is absent, so its seconds are not "
                    "known; give --by output-tokens or --by turns"
                )
            total += seconds
    return round(total, 6)


_LENGTHS: dict[Unit, Callable[[Trajectory], float]] = {
    "seconds": _seconds,
    "output_tokens": lambda trajectory: float(sum(turn.output_tokens for turn in trajectory.turns)),
    "turns": lambda trajectory: float(len(trajectory.turns)),
}
