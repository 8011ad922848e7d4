"""What becomes of each sample of a batch, in virtual time, whatever kind of workers serves its turns."""

import heapq
from abc import ABC, abstractmethod

from coresched.batch.coordinator import Coordinator
from coresched.lab.simulator.expectations import expected_lengths
from coresched.lab.simulator.model import StepTimes
from coresched.lab.simulator.outcome import Outcome
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.twin.routing import RequestRouter
from coresched.lab.simulator.workload import Workload

WAKE, ARRIVE, ENVIRONMENT_END = range(3)


class SampleFlow(ABC):
    """Admission, routing, environment stages and what they add to the outcome.

    A subclass has the workers: `_enqueue` gives one a turn, and its first token and end come back through
    `_first_token` and `_request_finished`. Events wait in ``heap``, earliest first.
    """

    router_class = RequestRouter

    def __init__(self, workload: Workload, settings: RunSettings, times: StepTimes) -> None:
        self.workload = workload
        self.settings = settings
        self.times = times
        self.coordinator = Coordinator(
            settings.sample_concurrency,
            settings.environment_concurrency,
            environment_policy=settings.environment_policy,
            admission_policy=settings.admission_policy,
            band_s=settings.band_s,
            bucket_s=settings.bucket_s,
        )
        self.router = self.router_class(workload, settings, times)
        self.heap: list[tuple[float, int, int, int, int]] = []
        self.sequence = 0
        self.index_of = {label: index for index, label in enumerate(workload.labels)}
        self.turn = list(workload.first_turn[:-1])
        self.worker_of = [-1] * workload.samples
        self.arrived_s = [0.0] * workload.samples
        self.first_token_s = [0.0] * workload.samples
        self.measured_s = 0.0
        self.outcome = Outcome(workers=settings.workers)

    @abstractmethod
    def _enqueue(self, worker: int, sample: int, turn: int, t: float) -> None:
        """Give a worker a turn, at ``t``."""

    def _release(self, sample: int) -> None:  # noqa: B027  # not all workers can be told
        """Tell the workers that the sample has finished."""

    def _start(self) -> None:
        """Submit the batch and admit the first samples, at time 0."""
        expected = expected_lengths(self.workload, self.settings, self.times)
        for label, length in zip(self.workload.labels, expected, strict=True):
            self.coordinator.submit(label, 0.0, length)
        self._admit(0.0)

    def _push(self, t: float, kind: int, subject: int, version: int = 0) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (t, self.sequence, kind, subject, version))

    def _admit(self, t: float) -> None:
        for label in self.coordinator.admit(t):
            self._send(self.index_of[label], t)

    def _send(self, sample: int, t: float) -> None:
        prompt = self.workload.prompt_tokens[self.turn[sample]]
        self._push(t + self.times.turnaround_s + self.times.turnaround_token_s * prompt, ARRIVE, sample)

    def _arrive(self, sample: int, t: float) -> None:
        turn = self.turn[sample]
        self.coordinator.start_inference(self.workload.labels[sample], t)
        self._measure(t)
        worker = self.router.route(sample, self.workload.prompt_tokens[turn], t)
        if self.worker_of[sample] not in (-1, worker):
            self.outcome.migrations += 1
        self.worker_of[sample] = worker
        self.arrived_s[sample] = t
        self._log_load(t, worker, 1)
        self._enqueue(worker, sample, turn, t)

    def _first_token(self, sample: int, t: float) -> None:
        self.first_token_s[sample] = t
        self.router.started(sample, self.worker_of[sample], t)
        self.outcome.requests += 1
        self.outcome.ttft_s += t - self.arrived_s[sample]

    def _request_finished(self, sample: int, t: float) -> None:
        turn, worker = self.turn[sample], self.worker_of[sample]
        label = self.workload.labels[sample]
        self._measure(t)
        self.router.release(sample, worker, t)
        self._log_load(t, worker, -1)
        self.outcome.decode_s += t - self.first_token_s[sample]
        self.coordinator.finish_inference(label, t)
        if self.workload.environment_s[turn] >= 0:
            self.coordinator.request_environment(label, t)
            self._dispatch(t)
        else:
            self._advance(sample, t)

    def _dispatch(self, t: float) -> None:
        for label in self.coordinator.dispatch(t):
            sample = self.index_of[label]
            duration = self.workload.environment_s[self.turn[sample]]
            self.outcome.environment_s += duration
            self._push(t + duration, ENVIRONMENT_END, sample)

    def _environment_end(self, sample: int, t: float) -> None:
        self.coordinator.finish_environment(self.workload.labels[sample], t)
        self._advance(sample, t)
        self._dispatch(t)

    def _advance(self, sample: int, t: float) -> None:
        self.turn[sample] += 1
        if self.turn[sample] < self.workload.first_turn[sample + 1]:
            self._send(sample, t)
        else:
            self.router.finished(sample)
            if self.settings.release_finished:
                self._release(sample)
            self.coordinator.finish(self.workload.labels[sample], t)
            self.outcome.completed_s.append(t)
            self._admit(t)

    def _log_load(self, t: float, worker: int, change: int) -> None:
        self.outcome.load_t.append(t)
        self.outcome.load_worker.append(worker)
        self.outcome.load_change.append(change)

    def _measure(self, t: float) -> None:
        """Integrate in-flight and its imbalance over the workers up to t."""
        elapsed = t - self.measured_s
        self.measured_s = t
        in_flight, workers = self.router.in_flight, self.settings.workers
        total = sum(in_flight)
        self.outcome.in_flight_s += total * elapsed
        if workers > 1 and total > 1:
            mean = total / workers
            deviation = 0.0
            for count in in_flight:
                deviation += abs(count - mean)
            self.outcome.imbalance_s += elapsed * (deviation / (2 * total * (1 - 1 / workers)))
            self.outcome.shared_load_s += elapsed
