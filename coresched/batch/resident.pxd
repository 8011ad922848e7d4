cimport cython

from coresched.batch.sample cimport Sample
from coresched.core.chain cimport ChainAdvancingQueue


@cython.final
cdef class ResidentSlots:
    cdef readonly Py_ssize_t queued
    cdef readonly Py_ssize_t held
    cdef Py_ssize_t _most
    cdef ChainAdvancingQueue _queue

    # The caller vouches for the sample's stage; `arrival` is when its wait began, seconds since the batch did.
    cdef int enter(self, Sample sample, double since, double arrival) except -1
    cdef Sample next_grant(self, double now)
    cdef int leave(self, Sample sample, double now) except -1
    cdef int give_back(self, Sample sample, double now) except -1
