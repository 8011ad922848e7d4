"""The simulator's plain-Python workers as workers of a lockstep run, and a twin whose ties are noticed."""

import heapq
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from coresched.lab.simulator.evictions.registry import make_eviction
from coresched.lab.simulator.lockstep.workers import FinishedTurn, WorkerCounts
from coresched.lab.simulator.memory import Memory, require_fit, split_memory
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.twin.cluster import Cluster
from coresched.lab.simulator.twin.flow import WAKE
from coresched.lab.simulator.twin.pools import CachePools
from coresched.lab.simulator.twin.worker import SimulatedWorker
from coresched.lab.simulator.workload import Workload
from coresched.trajectory.schema import Trajectory


class SteppedTwin:
    """One worker of the twin with a clock of its own, which refuses what lockstep must not do."""

    def __init__(self, workload: Workload, settings: RunSettings, model: WorkerModel, memory: Memory) -> None:
        self.workload = workload
        self.worker = SimulatedWorker(
            workload,
            settings,
            model,
            CachePools(workload, memory, make_eviction(settings, workload, model)),
            wake_at=self._wake_at,
            started=self._started,
            finished=self._end,
        )
        self.wakes: list[tuple[float, int]] = []
        self.now = 0.0
        self.enqueued_s: dict[int, float] = {}
        self.first_token_s: dict[int, float] = {}
        self.hits: dict[int, int] = {}
        self.finished: list[FinishedTurn] = []
        self._start = self.worker.pools.start
        self.worker.pools.start = self._admitted  # type: ignore[method-assign]

    @property
    def next_event_s(self) -> float:
        while self.wakes and self.wakes[0][1] != self.worker.version:
            heapq.heappop(self.wakes)
        return self.wakes[0][0] if self.wakes else inf

    def enqueue(self, sample: int, turn: int, t: float) -> None:
        assert self.now <= t <= self.next_event_s or t == self.now
        self.now = t
        self.enqueued_s[sample] = t
        self.worker.enqueue(sample, turn, t)

    def advance(self, until: float) -> list[FinishedTurn]:
        assert until >= self.now
        while (t := self.next_event_s) <= until:
            heapq.heappop(self.wakes)
            self.worker.wake(t)
        self.now = until
        finished, self.finished = self.finished, []
        return finished

    def _wake_at(self, t: float, version: int) -> None:
        heapq.heappush(self.wakes, (t, version))

    def _admitted(self, sample: int, final: int) -> None:
        turn = self.worker.waiting.turn_of[sample]
        self.hits[sample] = self.worker.pools.hit(sample, self.workload.prompt_tokens[turn])
        self._start(sample, final)

    def _started(self, sample: int, t: float) -> None:
        self.first_token_s[sample] = t

    def _end(self, sample: int, t: float) -> None:
        first = self.first_token_s[sample]
        self.finished.append(
            FinishedTurn(sample, first, t, self.hits[sample], first - self.enqueued_s[sample])
        )


class SteppedTwins:
    """W of them."""

    def __init__(self, workload: Workload, settings: RunSettings, model: WorkerModel, memory: Memory) -> None:
        self.each = [SteppedTwin(workload, settings, model, memory) for _ in range(settings.workers)]

    def next_event_s(self, worker: int) -> float:
        return self.each[worker].next_event_s

    def enqueue(self, worker: int, sample: int, turn: int, t: float) -> None:
        self.each[worker].enqueue(sample, turn, t)

    def advance(self, workers: Sequence[int], until: float) -> list[list[FinishedTurn]]:
        return [self.each[worker].advance(until) for worker in workers]

    def counts(self) -> list[WorkerCounts]:
        return [WorkerCounts(each.worker.busy_s, each.worker.new_prefill_tokens) for each in self.each]


@dataclass(frozen=True)
class TwinDeployment:
    """Lockstep runs on the twin's workers."""

    model: WorkerModel

    @property
    def bounds_model(self) -> WorkerModel:
        return self.model

    @contextmanager
    def workers(
        self, batch: Sequence[Trajectory], workload: Workload, settings: RunSettings
    ) -> Iterator[SteppedTwins]:
        memory = split_memory(self.model, settings.state_ratio, settings.pool_policy)
        require_fit(workload, memory)
        yield SteppedTwins(workload, settings, self.model, memory)


class TiesNoticed(Cluster):
    """The twin's cluster; ``tie`` says whether a worker's step ended at the time of another event.

    Those two go in the order in which they were planned here, and in an order of its own in lockstep.
    """

    tie = False
    _last: tuple[float, int, int] = (-1.0, 0, 0)

    def _push(self, t: float, kind: int, subject: int, version: int = 0) -> None:
        for other_t, _, other_kind, other_subject, _ in self.heap:
            if other_t == t and WAKE in (kind, other_kind):
                self.tie |= kind != other_kind or subject != other_subject
        super()._push(t, kind, subject, version)
