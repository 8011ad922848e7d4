cdef class Columns:
    cdef readonly object workload
    cdef readonly list labels
    cdef readonly int samples
    cdef readonly int groups
    cdef long long* first_turn
    cdef long long* prompt
    cdef long long* output
    cdef long long* cached
    cdef double* environment_s
    cdef long long* group
    cdef long long* shared
