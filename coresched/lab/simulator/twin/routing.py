"""Which worker a request goes to."""

from collections.abc import Callable, Iterable
from typing import Protocol

from coresched.core.reference import ReferenceRouter
from coresched.lab.simulator.model import StepTimes
from coresched.lab.simulator.routers.registry import plain_router
from coresched.lab.simulator.routers.router import worker_names
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload


class Ring(Protocol):
    """LBCH, `core.ring.LoadBoundedRouter` or its twin."""

    def route(self, label: str) -> str: ...
    def home(self, label: str) -> str: ...
    def release(self, worker: str) -> None: ...


def reference_ring(workers: Iterable[str], load_bound: float) -> Ring:
    return ReferenceRouter(workers, load_bound=load_bound)


class RequestRouter:
    """The routers of a run; each reads labels, in-flight counts and, for cache-aware, the prompts seen."""

    make_ring: Callable[[Iterable[str], float], Ring] = staticmethod(reference_ring)

    def __init__(self, workload: Workload, settings: RunSettings, times: StepTimes) -> None:
        self.workload = workload
        self.settings = settings
        self.in_flight = [0] * settings.workers
        names = worker_names(settings.workers)
        self.worker_of = {name: index for index, name in enumerate(names)}
        self.names = names
        self.ring = self.make_ring(names, settings.load_bound)
        self.next_worker = 0
        self.tree_tokens = [0] * settings.workers
        self.seen_by: dict[int, int] = {}
        self.seen_tokens: dict[tuple[int, int], int] = {}
        self.group_worker: dict[int, int] = {}
        self.plain = plain_router(workload.labels, settings, times)

    def route(self, sample: int, prompt_tokens: int, t: float) -> int:
        """Choose a worker and count the request in flight there."""
        routing, label = self.settings.routing, self.workload.labels[sample]
        if self.plain is not None:
            worker = self.plain.place(sample, prompt_tokens, list(self.in_flight), t)
        elif routing == "lbch":
            worker = self.worker_of[self.ring.route(label)]
        elif routing == "consistent-hash":
            worker = self.worker_of[self.ring.home(label)]
        elif routing == "round-robin":
            worker = self.next_worker
            self.next_worker = (worker + 1) % len(self.in_flight)
        else:
            worker = self._cache_aware(sample, prompt_tokens)
        self.in_flight[worker] += 1
        return worker

    def started(self, sample: int, worker: int, t: float) -> None:
        if self.plain is not None:
            self.plain.started(sample, worker, t)

    def release(self, sample: int, worker: int, t: float) -> None:
        """The sample's turn has ended."""
        self.in_flight[worker] -= 1
        if self.plain is not None:
            self.plain.ended(sample, worker, t)
        elif self.settings.routing == "lbch":
            self.ring.release(self.names[worker])

    def finished(self, sample: int) -> None:
        if self.plain is not None:
            self.plain.finished(sample)

    def _cache_aware(self, sample: int, prompt_tokens: int) -> int:
        thresholds = self.settings.cache_aware
        highest, lowest = max(self.in_flight), min(self.in_flight)
        group = self.workload.group[sample]
        matched_worker, matched = self.group_worker.get(group, -1), self.workload.shared_tokens[sample]
        if sample in self.seen_by:
            matched_worker = self.seen_by[sample]
            matched = self.seen_tokens[sample, matched_worker]
        if (
            highest - lowest > thresholds.balance_abs_threshold
            and highest > thresholds.balance_rel_threshold * lowest
        ):
            worker = self.in_flight.index(lowest)
        elif matched_worker >= 0 and matched > thresholds.cache_threshold * prompt_tokens:
            worker = matched_worker
        else:
            worker = self.tree_tokens.index(min(self.tree_tokens))
        self.tree_tokens[worker] += prompt_tokens - self.seen_tokens.get((sample, worker), 0)
        self.seen_tokens[sample, worker] = prompt_tokens
        self.seen_by[sample] = worker
        self.group_worker.setdefault(group, worker)
        return worker
