"""The simulator's worker, driven request by request, and with requests that end before their time."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import floor
from typing import Final, Literal, get_args

from coresched.lab.simulator.memory import Memory
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.twin.worker import DECODE, SimulatedWorker
from coresched.lab.worker.cache import LivePools
from coresched.lab.worker.requests import LiveColumns, LiveRequest
from coresched.lab.worker.waiting import LiveQueue

LivePolicy = Literal["fcfs", "lpm", "dfs-weight", "routing-prefix"]
LIVE_POLICIES: Final[tuple[LivePolicy, ...]] = get_args(LivePolicy)
"""Those of the simulator that need not know whom the cache holds: its entries may have no label here."""


@dataclass(frozen=True)
class WorkerSettings:
    """How the worker orders its waiting queue; ``label_capacity`` is C_A of routing-prefix."""

    worker_policy: LivePolicy
    label_capacity: int


class LiveWorker(SimulatedWorker):
    """Admission, prefill chunks, decode runs and step times are those of `SimulatedWorker`.

    ``wake_at(time)`` replaces the wake that was asked for before.
    """

    waiting_class = LiveQueue
    waiting: LiveQueue
    pools: LivePools

    def __init__(
        self,
        settings: WorkerSettings,
        model: WorkerModel,
        memory: Memory,
        wake_at: Callable[[float], None],
        started: Callable[[LiveRequest, float], None],
        finished: Callable[[LiveRequest, float], None],
    ) -> None:
        self.columns = LiveColumns()
        super().__init__(
            self.columns,
            settings,
            model,
            LivePools(self.columns, memory),
            wake_at=lambda t, version: wake_at(t),
            started=lambda number, t: started(self.columns[number], t),
            finished=lambda number, t: finished(self.columns[number], t),
        )
        self.aborted: set[int] = set()

    def submit(self, request: LiveRequest, t: float) -> int:
        """Queue the request; returns its number."""
        number = self.columns.add(request)
        self.enqueue(number, number, t)
        return number

    def abort(self, number: int, t: float) -> None:
        """End the request without an answer: at once if it waits, else with the present step.

        Its entry keeps what was computed of the prompt. A request that is not there has ended already.
        """
        if number not in self.columns:
            return
        if self.waiting.withdraw(number):
            self._leave(number)
            return
        self.aborted.add(number)
        if self.operation == DECODE:
            self._cut_run(t)

    def produced(self, t: float) -> Iterator[tuple[LiveRequest, int]]:
        """Each decoding request and its reply tokens until t, which is before the next wake."""
        passed = self._whole_steps(t)
        for end, number in self.running:
            request = self.columns[number]
            yield request, len(request.reply) - (end - self.steps - passed)

    def next_tokens_at(self, t: float) -> float | None:
        """When the decode step under way ends, if a streamed request is in it."""
        if self.operation != DECODE or not any(self.columns[number].streamed for _, number in self.running):
            return None
        return self._run_time(min(self._whole_steps(t) + 1, self.run_steps))

    def _whole_steps(self, t: float) -> int:
        return min(floor(self._steps_passed(t) + 1e-9), self.run_steps) if self.operation == DECODE else 0

    def _end_prefill(self, t: float) -> None:
        self._drop_aborted()
        super()._end_prefill(t)

    def _end_run(self, t: float) -> None:
        super()._end_run(t)
        self._drop_aborted()

    def _finish(self, sample: int, t: float) -> None:
        super()._finish(sample, t)
        self._leave(sample)

    def _drop_aborted(self) -> None:
        for number in self.aborted & self.columns.requests.keys():
            prompt = computed = self.columns.prompt_tokens[number]
            if self.partial is not None and self.partial[0] == number:
                computed = self.partial[1]
                self.partial = None
            elif number in self.batch:
                self.batch.remove(number)
            else:
                tokens = self.pools.tokens[number]
                self.running = [entry for entry in self.running if entry[1] != number]
                heapq.heapify(self.running)
                self.context_tokens -= tokens
                self.generated_tokens += tokens - prompt
            self.pools.finish(number, prompt + self.columns.output_tokens[number], computed)
            self.full = False
            self._leave(number)
        self.aborted.clear()
        if not self.running:
            self.freed = 0

    def _leave(self, number: int) -> None:
        self.waiting.forget(number)
        self.columns.drop(number)
