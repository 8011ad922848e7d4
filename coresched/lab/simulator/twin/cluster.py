"""The event loop: a batch on W simulated workers, in virtual time."""

import heapq

from coresched.lab.simulator.evictions.registry import make_eviction
from coresched.lab.simulator.memory import Memory
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.outcome import Outcome
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.twin.flow import ARRIVE, GATE_CHECK, RELEASE, WAKE, SampleFlow
from coresched.lab.simulator.twin.pools import CachePools
from coresched.lab.simulator.twin.worker import SimulatedWorker
from coresched.lab.simulator.workload import Workload


class Cluster(SampleFlow):
    """Runs one batch to its end. ``run()`` may be called once."""

    worker_class = SimulatedWorker

    def __init__(self, workload: Workload, settings: RunSettings, model: WorkerModel, memory: Memory) -> None:
        super().__init__(workload, settings, model.times, memory.kv_tokens)
        self.workers = [self._worker(index, model, memory) for index in range(settings.workers)]

    def _worker(self, index: int, model: WorkerModel, memory: Memory) -> SimulatedWorker:
        return self.worker_class(
            self.workload,
            self.settings,
            model,
            CachePools(self.workload, memory, make_eviction(self.settings, self.workload, model)),
            wake_at=lambda t, version: self._push(t, WAKE, index, version),
            started=self._first_token,
            finished=self._request_finished,
        )

    def _enqueue(self, worker: int, sample: int, turn: int, t: float) -> None:
        self.workers[worker].enqueue(sample, turn, t)

    def _release(self, sample: int) -> None:
        for worker in self.workers:
            worker.release(sample)

    def run(self) -> Outcome:
        self._start()
        outcome = self.outcome
        while self.heap:
            t, _, kind, subject, version = heapq.heappop(self.heap)
            if kind == WAKE:
                worker = self.workers[subject]
                if worker.version != version:
                    continue
                outcome.events += 1
                worker.wake(t)
            elif kind == ARRIVE:
                outcome.events += 1
                self._arrive(subject, t)
            elif kind == GATE_CHECK:
                outcome.events += 1
                self._gate_check(t)
            elif kind == RELEASE:
                outcome.events += 1
                self._release_overdue(subject, version, t)
            else:
                outcome.events += 1
                self._environment_end(subject, t)
        priority_s = 0.0
        for worker in self.workers:
            priority_s += worker.priority_s
            outcome.input_tokens += worker.input_tokens
            outcome.new_prefill_tokens += worker.new_prefill_tokens
            outcome.output_tokens.append(worker.generated_tokens)
            outcome.busy_s.append(worker.busy_s)
        # Not sum(), which later Pythons round otherwise.
        outcome.priority_s = priority_s
        outcome.evictions = sum(worker.pools.evictions for worker in self.workers)
        outcome.decode_steps = sum(worker.steps for worker in self.workers)
        return outcome
