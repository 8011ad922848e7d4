from coresched.core.gaps cimport TurnGaps
from coresched.core.residency cimport ResidencyPolicy
from coresched.lab.simulator.engine.columns cimport Columns
from coresched.lab.simulator.engine.pools cimport CachePools

cdef class Residency:
    cdef Columns columns
    cdef CachePools pools
    cdef ResidencyPolicy policy
    cdef TurnGaps gaps  # None without the guard

    cdef int tick(self, long long now) except -1
    cdef void arrived(self, int sample) noexcept
    cdef int order(self, list waiting, Py_ssize_t entered) except -1
    cdef int finished(self, int sample) except -1
    cdef int release(self, int sample) except -1
    cdef bint holds_back(self, int sample, long long final_tokens) noexcept
    cdef int learn(self) except -1
