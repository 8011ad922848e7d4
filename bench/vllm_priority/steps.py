"""What is timed of whole steps: vLLM's `schedule` with a queue that waits while all that can run does."""

import gc
from collections.abc import Callable
from time import thread_time
from typing import Any

from coresched_vllm.virtual.engine import VirtualEngine

STEPS = 50


class TimedSteps:
    """One engine; ``wait`` puts requests into its queue, none of which is admitted."""

    def __init__(self, engine: VirtualEngine) -> None:
        self._engine = engine
        self._taken = 0.0
        schedule: Callable[[], Any] = engine.scheduler.schedule

        def timed_schedule() -> Any:
            began = thread_time()
            output = schedule()
            self._taken += thread_time() - began
            return output

        engine.scheduler.schedule = timed_schedule

    def wait(self, requests: list[Any]) -> None:
        for request in requests:
            self._engine.scheduler.add_request(request)
        self._engine.step()

    def timing(self) -> float:
        """CPU seconds of one call of `schedule`, the mean of `STEPS`."""
        waiting = len(self._engine.scheduler.waiting)
        self._taken = 0.0
        gc.collect()
        gc.disable()
        for _ in range(STEPS):
            self._engine.step()
        gc.enable()
        if len(self._engine.scheduler.waiting) != waiting:
            raise RuntimeError("no request must be admitted while steps are timed")
        return self._taken / STEPS
