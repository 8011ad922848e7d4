"""What is timed of whole steps: vLLM's `schedule` with a queue that waits while all that can run does."""

import gc
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from time import thread_time
from typing import Any

from coresched_vllm.virtual.engine import VirtualEngine

from bench.vllm_priority import names

STEPS = 20
Methods = Sequence[tuple[Any, str]]
"""Objects, and the name of a method of each."""


def parts_of(scheduler: Any) -> dict[str, Methods]:
    """What of a pass to show apart: of a scheduler of ours what is not the order of its queue."""
    retention, ordering = getattr(scheduler, "retention", None), getattr(scheduler, "ordering", None)
    parts: dict[str, Methods] = {}
    if ordering is not None and hasattr(ordering, "residency"):
        parts[names.GUARD_PART] = [(ordering, "held_back")]
        parts[names.RESIDENCY_PART] = [(ordering, "passed"), (ordering.residency, "refresh")]
    elif retention is not None:
        parts[names.RETENTION_PART] = [(retention, name) for name in ("forget", "demote", "observe")]
    return parts


class TimedSteps:
    """One engine; ``wait`` puts requests into its queue, none of which is admitted.

    ``parts`` are methods that `schedule` calls, by the name of what they do together.
    """

    def __init__(self, engine: VirtualEngine, parts: Mapping[str, Methods]) -> None:
        self._engine = engine
        self._taken = dict.fromkeys((names.STEP, *parts), 0.0)
        self._watch(names.STEP, engine.scheduler, "schedule")
        for name, methods in parts.items():
            for owner, method in methods:
                self._watch(name, owner, method)
        self.parts: dict[str, list[float]] = {name: [] for name in parts}
        """CPU seconds of each part in a call of `schedule`, of each timing until it is cleared."""

    def wait(self, requests: list[Any]) -> None:
        for request in requests:
            self._engine.scheduler.add_request(copy(request))  # our orders attach to it what is one engine's
        self._engine.step()

    def timing(self) -> float:
        """CPU seconds of one call of `schedule`, the mean of `STEPS`."""
        waiting = len(self._engine.scheduler.waiting)
        self._taken = dict.fromkeys(self._taken, 0.0)
        gc.collect()
        gc.disable()
        for _ in range(STEPS):
            self._engine.step()
        gc.enable()
        if len(self._engine.scheduler.waiting) != waiting:
            raise RuntimeError("no request must be admitted while steps are timed")
        for name, samples in self.parts.items():
            samples.append(self._taken[name] / STEPS)
        return self._taken[names.STEP] / STEPS

    def _watch(self, name: str, owner: Any, method: str) -> None:
        called: Callable[..., Any] = getattr(owner, method)

        def watched(*args: Any, **kwargs: Any) -> Any:
            began = thread_time()
            found = called(*args, **kwargs)
            self._taken[name] += thread_time() - began
            return found

        setattr(owner, method, watched)
