from libcpp.vector cimport vector

from coresched.core.ring cimport LoadBoundedRouter
from coresched.lab.simulator.engine.columns cimport Columns

cdef class RequestRouter:
    cdef Columns columns
    cdef int kind, workers
    cdef vector[long long] in_flight
    cdef LoadBoundedRouter ring
    cdef int next_worker
    cdef long long balance_abs_threshold
    cdef double cache_threshold, balance_rel_threshold
    cdef vector[long long] tree_tokens
    cdef vector[int] seen_by
    cdef vector[long long] seen_tokens
    cdef vector[int] group_worker
    cdef object plain  # a Router of `routers`, or None

    cdef int route(self, int sample, long long prompt_tokens, double t) except -1
    cdef int started(self, int sample, int worker, double t) except -1
    cdef int release(self, int sample, int worker, double t) except -1
    cdef int finished(self, int sample) except -1
    cdef int cache_aware(self, int sample, long long prompt_tokens) noexcept
