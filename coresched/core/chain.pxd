cdef class Entry:
    cdef object job
    cdef double band
    cdef long long turns
    cdef double bucket
    cdef long long sequence
    cdef Py_ssize_t place  # index in the heap


cdef class ChainAdvancingQueue:
    cdef readonly double band_s
    cdef readonly double bucket_s
    cdef list _heap     # of Entry, smallest key first
    cdef dict _entries  # job -> its Entry
    cdef long long _sequence

    # C callers pass the arguments by position; Python callers by keyword.
    cpdef push(self, object job, object requested_at, object turns, object mean_inference_s)
    # The same with C numbers. The caller vouches for turns >= 0; the rest is checked.
    cdef int enter(self, object job, double requested_at, long long turns, double mean_inference_s) except -1
    cpdef object pop(self)
    cpdef object peek(self)
    cpdef bint discard(self, object job) except -1

    cdef int _take(self, Entry entry) except -1
    cdef void _rise(self, Entry entry, Py_ssize_t place) noexcept
    cdef void _sink(self, Entry entry, Py_ssize_t place) noexcept
