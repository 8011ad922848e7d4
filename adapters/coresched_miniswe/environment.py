"""Any environment class of mini-swe-agent, with its commands in environment slots."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from minisweagent.environments import get_environment_class
from minisweagent.environments.local import LocalEnvironment
from minisweagent.exceptions import InterruptAgentFlow
from minisweagent.utils.serialize import recursive_merge

from coresched.errors import InputError
from coresched_miniswe.beginning import begin, gate_or_warning, merged_info
from coresched_miniswe.failures import gate_failures_end_the_run
from coresched_miniswe.inner import class_name, inner_of, subclass
from coresched_miniswe.runner import Task, task_of_runner
from coresched_miniswe.trajectories import Trajectory, current_trajectory
from coresched_miniswe.trajectories import trajectory as one_trajectory

# The classes to which `mini-extra swebench` gives the instance's image, as it writes it for each.
_IMAGES = {
    "DockerEnvironment": "{}",
    "SwerexModalEnvironment": "{}",
    "SingularityEnvironment": "docker://{}",
    "ContreeEnvironment": "docker://{}",
}


class GatedEnvironment:
    """An environment of the class `inner_class`, whose name or import path mini-swe-agent knows, or a class.

    The other options are that class's own. Commands wait for an environment slot, and their `timeout` counts
    from its grant. All commands of one reply are one stage if the model is a `GatedModel`, else each is.
    An environment that starts something (any but "local") is admitted before that, waits for a resident slot
    where the gate has some, and starts in an environment slot. Raises InputError without `inner_class`, and
    what mini-swe-agent raises for a class that it does not know or options that the class does not take.
    """

    def __new__(cls, *, inner_class: str | type | None = None, **config: Any) -> GatedEnvironment:
        face: Any = cls
        with gate_failures_end_the_run():
            inner = _class_of(inner_class)
        made: GatedEnvironment = object.__new__(_gated(face, inner))
        return made

    def __init__(self, *, inner_class: str | type, **config: Any) -> None:
        self._inner_class = class_name(inner_class)
        self._trajectory: Trajectory | None = None
        with gate_failures_end_the_run():
            self._start_gated(config)

    def _start_gated(self, config: dict[str, Any]) -> None:
        task = task_of_runner()
        _add_image(config, type(self), task)
        gate = gate_or_warning()
        starts_something = not isinstance(self, LocalEnvironment)
        if gate is not None and current_trajectory() is None and (task.ends or starts_something):
            self._trajectory = begin(gate, task)
            # Where nothing else ends it: an agent that was never made, or whose run never began.
            weakref.finalize(self, self._trajectory.end_later).atexit = False
        inner: Any = super()
        try:
            held = self.open_trajectory()
            if held is not None and starts_something:
                held.keep_resident()
                with held.command():  # to start it is work for the same machines
                    inner.__init__(**config)
            else:
                inner.__init__(**config)
        except BaseException as error:
            if self._trajectory is not None:
                self._trajectory.end(type(error))
            raise

    def open_trajectory(self) -> Trajectory | None:
        """The trajectory that runs in this thread, or else the one for which this environment was made."""
        running = current_trajectory()
        if running is not None:
            return running
        return None if self._trajectory is None or self._trajectory.over else self._trajectory

    def run_in(self, trajectory: Trajectory) -> None:
        """Its commands belong to `trajectory` from now on, from whatever thread they come."""
        self._trajectory = trajectory

    def execute(self, action: Any, *args: Any, **options: Any) -> Any:
        inner: Any = super()
        trajectory = self.open_trajectory()
        if trajectory is not None:
            command = None
            try:
                with trajectory.command(action, harmless=InterruptAgentFlow) as command:
                    output = inner.execute(action, *args, **options)
            except InterruptAgentFlow as error:  # such as the task's submission
                if error.messages and command is not None:
                    error.messages[0].setdefault("extra", {})["coresched"] = command.recorded()
                raise
            return recursive_merge(output, {"extra": {"coresched": command.recorded()}})
        if gate_or_warning() is None:
            return inner.execute(action, *args, **options)
        with one_trajectory(None if self._trajectory is None else self._trajectory.name):
            return self.execute(action, *args, **options)

    def serialize(self) -> dict[str, Any]:
        """The inner class's, with `inner_class`, and what the gate did under `info.coresched`."""
        inner: Any = super()
        chosen = {"info": {"config": {"environment": {"inner_class": self._inner_class}}}}
        merged: dict[str, Any] = recursive_merge(inner.serialize(), chosen, merged_info(self._trajectory))
        return merged


def _class_of(inner_class: str | type | None) -> type:
    if inner_class is None:
        raise InputError(
            "environment.inner_class must name the environment class to gate, such as docker or local, "
            "or an import path; got none"
        )
    return inner_of(inner_class, GatedEnvironment, get_environment_class, "environment.inner_class")


@functools.cache
def _gated(face: Any, inner: type) -> Any:
    return subclass(face, inner)


def _add_image(config: dict[str, Any], inner: type, task: Task) -> None:
    """As `mini-extra swebench` does for the classes that it knows by name, which it does not see here."""
    written = next((_IMAGES[base.__name__] for base in inner.__mro__ if base.__name__ in _IMAGES), None)
    if written is not None and task.instance is not None:
        from minisweagent.run.benchmarks.swebench import get_swebench_docker_image_name

        config["image"] = written.format(get_swebench_docker_image_name(task.instance))
