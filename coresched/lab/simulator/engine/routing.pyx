# cython: boundscheck=False, wraparound=False
"""Which worker a request goes to."""

from libcpp.vector cimport vector

from coresched.core.ring cimport LoadBoundedRouter
from coresched.lab.simulator.engine.columns cimport Columns

from coresched.lab.simulator.routers.registry import plain_router
from coresched.lab.simulator.routers.router import worker_names
from coresched.lab.simulator.settings import COMPILED_ROUTERS

cdef enum:
    ROUND_ROBIN, CACHE_AWARE, CONSISTENT_HASH, LBCH  # in the order of COMPILED_ROUTERS
    PLAIN


cdef int least(const vector[long long]& amounts) noexcept:
    """The first of the smallest."""
    cdef int index, found = 0
    for index in range(1, <int>amounts.size()):
        if amounts[index] < amounts[found]:
            found = index
    return found


cdef class RequestRouter:
    """The routers of a run; each reads labels, in-flight counts and, for cache-aware, the prompts it has seen."""

    def __init__(self, Columns columns, settings, times):
        cdef int workers = settings.workers
        self.columns = columns
        self.plain = plain_router(columns.labels, settings, times)
        self.kind = PLAIN if self.plain is not None else COMPILED_ROUTERS.index(settings.routing)
        self.workers = workers
        self.in_flight.assign(workers, 0)
        # Slots of the ring are dense and in this order, so they are the workers' indices.
        self.ring = LoadBoundedRouter(worker_names(workers), load_bound=settings.load_bound)
        self.cache_threshold = settings.cache_aware.cache_threshold
        self.balance_abs_threshold = settings.cache_aware.balance_abs_threshold
        self.balance_rel_threshold = settings.cache_aware.balance_rel_threshold
        if self.kind == CACHE_AWARE:
            self.tree_tokens.assign(workers, 0)
            self.seen_by.assign(columns.samples, -1)
            self.seen_tokens.assign(columns.samples * workers, 0)
            self.group_worker.assign(columns.groups, -1)

    cdef int route(self, int sample, long long prompt_tokens, double t) except -1:
        """Choose a worker and count the request in flight there."""
        cdef int worker
        if self.kind == LBCH:
            worker = self.ring.place(self.columns.labels[sample])
        elif self.kind == CONSISTENT_HASH:
            worker = self.ring.home_slot(self.columns.labels[sample])
        elif self.kind == ROUND_ROBIN:
            worker = self.next_worker
            self.next_worker = (worker + 1) % self.workers
        elif self.kind == PLAIN:
            worker = self.plain.place(sample, prompt_tokens, self.in_flight, t)
        else:
            worker = self.cache_aware(sample, prompt_tokens)
        self.in_flight[worker] += 1
        return worker

    cdef int started(self, int sample, int worker, double t) except -1:
        if self.kind == PLAIN:
            self.plain.started(sample, worker, t)
        return 0

    cdef int release(self, int sample, int worker, double t) except -1:
        """The sample's turn has ended."""
        self.in_flight[worker] -= 1
        if self.kind == LBCH:
            self.ring.release_slot(worker)
        elif self.kind == PLAIN:
            self.plain.ended(sample, worker, t)
        return 0

    cdef int finished(self, int sample) except -1:
        if self.kind == PLAIN:
            self.plain.finished(sample)
        return 0

    cdef int cache_aware(self, int sample, long long prompt_tokens) noexcept:
        cdef long long group = self.columns.group[sample]
        cdef int matched_worker = self.group_worker[group]
        cdef long long matched = self.columns.shared[sample]
        cdef int worker
        cdef long long highest = 0, lowest = self.in_flight[least(self.in_flight)], seen
        for worker in range(self.workers):
            highest = max(highest, self.in_flight[worker])
        if self.seen_by[sample] >= 0:
            matched_worker = self.seen_by[sample]
            matched = self.seen_tokens[sample * self.workers + matched_worker]
        if highest - lowest > self.balance_abs_threshold and highest > self.balance_rel_threshold * lowest:
            worker = least(self.in_flight)
        elif matched_worker >= 0 and matched > self.cache_threshold * prompt_tokens:
            worker = matched_worker
        else:
            worker = least(self.tree_tokens)
        seen = sample * self.workers + worker
        self.tree_tokens[worker] += prompt_tokens - self.seen_tokens[seen]
        self.seen_tokens[seen] = prompt_tokens
        self.seen_by[sample] = worker
        if self.group_worker[group] < 0:
            self.group_worker[group] = worker
        return worker
