cimport cython

from coresched.batch.sample cimport Sample


@cython.final
cdef class AdmissionOrder:
    cdef bint _longest_first
    cdef list _plain    # samples without an expectation that counts, in submission order
    cdef Py_ssize_t _next  # none before this place of _plain is listed
    cdef list _expected    # heap of (-expected, place, sample)
    cdef list _again       # heap of (place, sample): who was passed, put back, and submitted again
    cdef list _shorter     # the lower half of all expectations, as a heap of their negatives
    cdef list _longer      # the upper half, as a heap; as long as the lower one, or one longer

    cdef int enter(self, Sample sample) except -1
    cdef int enter_again(self, Sample sample) except -1
    cdef Sample next(self)
    cdef bint _before(self, Sample expected, Sample plain) except -1
    cdef int _note(self, double expected) except -1
