cimport cython

cdef enum Stage:
    WAITING
    ADMITTED
    INFERENCE
    QUEUED
    ENVIRONMENT
    FINISHED
    WITHDRAWN
    RETURNED
    RESIDENT_QUEUED


@cython.final
cdef class Sample:
    cdef readonly str name
    cdef public int index  # the caller's own; 0 until set
    cdef Stage state
    cdef Py_ssize_t place  # in submission order, kept when it is put back
    cdef double expected   # its length in any one unit; NaN where nothing is expected
    cdef bint listed       # whether it is in the admission order
    cdef double submitted_at
    cdef double admitted_at   # this and the times below: NaN until they come
    cdef double finished_at
    cdef double waited_s   # of the last wait for admission that ended
    cdef long long admissions
    cdef double began_at      # of the present inference turn
    cdef double requested_at  # of the latest environment stage: slot asked for, granted, given back
    cdef double started_at
    cdef double ended_at
    cdef long long turns
    cdef long long stages
    cdef double inference_s
    cdef double failed_inference_s
    cdef double environment_queue_s
    cdef double environment_s
    cdef bint resident                  # whether it holds a resident slot, in whatever stage
    cdef double resident_requested_at   # of the latest resident slot: asked for, granted, given back
    cdef double resident_started_at
    cdef double resident_ended_at
    cdef double resident_wait_s
    cdef double resident_s

    cdef void begin(self, double now) noexcept
    cdef str state_name(self)
    cdef object times(self)
