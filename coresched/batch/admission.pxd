cimport cython


@cython.final
cdef class Entry:
    cdef readonly object item
    cdef readonly Py_ssize_t place
    cdef double expected   # NaN where nothing is, and wherever it does not count
    cdef bint waiting
    cdef bint taken        # it was, once
    cdef bint in_order     # whether it lies in _plain or _expected, waiting or not
    cdef bint in_again     # whether it lies in _again


@cython.final
cdef class AdmissionOrder:
    cdef readonly str policy
    cdef Py_ssize_t _waiting
    cdef Py_ssize_t _places
    cdef bint _longest_first
    cdef list _plain       # heap of (place, entry), of those without an expectation that counts
    cdef list _expected    # heap of (-expected, place, entry)
    cdef list _again       # heap of (place, entry), of those that were taken
    cdef list _shorter     # the lower half of all expectations, as a heap of their negatives
    cdef list _longer      # the upper half, as a heap; as long as the lower one, or one longer

    cpdef Entry add(self, object item, object expected=*)
    cpdef object take(self, Entry entry)
    cpdef object discard(self, Entry entry)
    cpdef object put_back(self, Entry entry)
    cpdef Entry first(self)
    cdef int _list(self, Entry entry) except -1
    cdef bint _before(self, Entry expected, Entry plain) except -1
    cdef int _note(self, double expected) except -1
