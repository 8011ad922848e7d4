"""Any model class of mini-swe-agent, with each attempt at a call as a turn."""

from __future__ import annotations

import functools
import time
from typing import Any

from coresched_harness.usage import record_usage, usage_of_answer
from minisweagent.models import get_model_class
from minisweagent.utils.serialize import recursive_merge

from coresched.errors import InputError
from coresched_miniswe.beginning import gate_or_warning, merged_info, warn_once
from coresched_miniswe.failures import GATE_FAILURES, gate_failures_end_the_run
from coresched_miniswe.inner import class_name, inner_of, subclass
from coresched_miniswe.sending import call_arguments, sends_headers
from coresched_miniswe.trajectories import Trajectory, current_trajectory
from coresched_miniswe.trajectories import trajectory as one_trajectory


class GatedModel:
    """A model of the class `inner_class`, by its name, its import path or itself; "litellm" by default.

    The other options are that class's own. Each attempt at a call is a turn of the trajectory: it carries the
    label, goes to the worker of the turn where the gate has workers, and is timed without the back-off
    between attempts. Classes that do not send through litellm take no headers: their turns are only timed.
    Raises what mini-swe-agent raises for a class that it does not know or options that the class does not
    take; a call raises InputError where such a class is to be routed.
    """

    def __new__(cls, *, inner_class: str | type = "litellm", **config: Any) -> GatedModel:
        found = inner_of(inner_class, GatedModel, functools.partial(get_model_class, ""), "model.inner_class")
        face: Any = cls
        made: GatedModel = object.__new__(_gated(face, found))
        return made

    def __init__(self, *, inner_class: str | type = "litellm", **config: Any) -> None:
        self._inner_class = class_name(inner_class)
        self._trajectory: Trajectory | None = None
        self._failed_at: tuple[str, ...] = ()  # the worker of the last attempt, if it failed
        self._inference_s: float | None = None
        with gate_failures_end_the_run():
            gate = gate_or_warning()
        if gate is not None and not sends_headers(type(self)):
            warn_once(
                f"model.inner_class {self._inner_class} takes no headers: its requests carry no label, "
                "and none goes to a worker of the gate's choice; litellm's classes do both"
            )
        inner: Any = super()
        inner.__init__(**config)

    def query(self, messages: Any, **options: Any) -> Any:
        inner: Any = super()
        running = current_trajectory()
        if running is None:
            if gate_or_warning() is None:
                return inner.query(messages, **options)
            with one_trajectory(None if self._trajectory is None else self._trajectory.name):
                return self.query(messages, **options)
        self._trajectory = running
        self._inference_s = None
        if hasattr(inner, "_query"):
            message = inner.query(messages, **options)
        else:
            with running.turn():
                started = time.monotonic()
                message = inner.query(messages, **options)
            self._inference_s = time.monotonic() - started
        extra = message.get("extra", {})
        running.expect_commands(extra.get("actions", ()))
        return {**message, "extra": {**extra, "coresched": {"inference_s": self._inference_s}}}

    def _query(self, messages: Any, **options: Any) -> Any:
        """One attempt; mini-swe-agent makes the next one after a back-off."""
        inner: Any = super()
        running = current_trajectory()
        if running is None:
            return inner._query(messages, **options)
        with running.turn(self._failed_at) as turn:
            if sends_headers(type(self)):
                settings: Any = self
                options = call_arguments(turn, settings.config.model_kwargs, options)
            elif turn.worker is not None:
                raise InputError(
                    f"model.inner_class {self._inner_class} cannot be routed among CORESCHED_WORKERS; use a "
                    "class of litellm, or leave CORESCHED_WORKERS out"
                )
            self._failed_at = () if turn.worker is None else (turn.worker,)
            started = time.monotonic()
            response = inner._query(messages, **options)
            self._inference_s = time.monotonic() - started
            self._failed_at = ()
            record_usage(turn, usage_of_answer(response))
        return response

    def serialize(self) -> dict[str, Any]:
        """The inner class's, with `inner_class`, and what the gate did under `info.coresched`."""
        inner: Any = super()
        chosen = {"info": {"config": {"model": {"inner_class": self._inner_class}}}}
        merged: dict[str, Any] = recursive_merge(inner.serialize(), chosen, merged_info(self._trajectory))
        return merged


@functools.cache
def _gated(face: Any, inner: type) -> Any:
    made: Any = subclass(face, inner)
    if not hasattr(inner, "_query"):
        return made
    # What will not pass by itself is not tried again.
    made.abort_exceptions = [
        *getattr(inner, "abort_exceptions", ()),
        *GATE_FAILURES,
    ]
    return made
