cimport cython

from coresched.core.chain cimport ChainAdvancingQueue

cdef enum Stage:
    WAITING
    ADMITTED
    INFERENCE
    QUEUED
    ENVIRONMENT
    FINISHED
    WITHDRAWN


@cython.final
cdef class Sample:
    cdef readonly str name
    cdef public int index  # the caller's own; 0 until set
    cdef Stage state
    cdef double submitted_at
    cdef double admitted_at   # this and the times below: NaN until they come
    cdef double finished_at
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


@cython.final
cdef class Coordinator:
    cdef readonly Py_ssize_t waiting
    cdef readonly Py_ssize_t admitted
    cdef readonly Py_ssize_t environment_queued
    cdef readonly Py_ssize_t environment_running
    cdef readonly Py_ssize_t finished
    cdef readonly Py_ssize_t withdrawn
    cdef readonly object environment_concurrency
    cdef readonly str environment_policy
    cdef Py_ssize_t _sample_slots
    cdef Py_ssize_t _environment_slots
    cdef bint _by_depth
    cdef ChainAdvancingQueue _queue
    cdef list _samples   # in submission order
    cdef dict _by_name
    cdef Py_ssize_t _next  # no sample before this place waits for admission
    cdef double _begun
    cdef double _now

    # For compiled callers: the same steps without a look-up by name. A Sample belongs to the Coordinator that
    # enrolled it and is never None here; next_admission and next_dispatch return None when there is none.
    cdef Sample enroll(self, str name, double now)
    cdef Sample next_admission(self, double now)
    cdef int begin_inference(self, Sample sample, double now) except -1
    cdef int end_inference(self, Sample sample, double now) except -1
    cdef int fail_inference(self, Sample sample, double now) except -1
    cdef int queue_environment(self, Sample sample, double now) except -1
    cdef Sample next_dispatch(self, double now)
    cdef int end_environment(self, Sample sample, double now) except -1
    cdef int fail_environment(self, Sample sample, double now) except -1
    cdef int complete(self, Sample sample, double now) except -1
    cdef int remove(self, Sample sample, double now) except -1

    cdef Sample _find(self, object name)
    cdef int _check_time(self, double now) except -1
    cdef int _check(self, Sample sample, Stage needed, str asked, double now) except -1
