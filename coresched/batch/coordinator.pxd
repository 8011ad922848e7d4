cimport cython

from coresched.batch.sample cimport Sample, RETURNED
from coresched.batch.steps cimport BatchSteps


@cython.final
cdef class Coordinator(BatchSteps):
    cdef Sample _find(self, object name)
