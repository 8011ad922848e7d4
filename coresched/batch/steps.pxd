from coresched.batch.admission cimport AdmissionOrder
from coresched.batch.resident cimport ResidentSlots
from coresched.batch.sample cimport Sample, Stage
from coresched.core.chain cimport ChainAdvancingQueue


cdef class BatchSteps:
    cdef readonly Py_ssize_t waiting
    cdef readonly Py_ssize_t admitted
    cdef readonly Py_ssize_t environment_queued
    cdef readonly Py_ssize_t environment_running
    cdef readonly Py_ssize_t finished
    cdef readonly Py_ssize_t withdrawn
    cdef readonly Py_ssize_t returned
    cdef readonly double band_s
    cdef readonly double bucket_s
    cdef readonly object environment_concurrency
    cdef readonly str environment_policy
    cdef readonly str admission_policy
    cdef readonly object resident_concurrency
    cdef Py_ssize_t _sample_slots
    cdef Py_ssize_t _environment_slots
    cdef bint _by_depth
    cdef ChainAdvancingQueue _queue
    cdef AdmissionOrder _order
    cdef ResidentSlots _residents
    cdef list _samples   # in submission order
    cdef dict _by_name
    cdef double _begun
    cdef double _now

    # next_admission, next_dispatch and next_resident return None when there is none; expected: NaN for none.
    cdef Sample enroll(self, str name, double now, double expected=*)
    cdef Sample next_admission(self, double now)
    cdef int begin_inference(self, Sample sample, double now) except -1
    cdef int end_inference(self, Sample sample, double now) except -1
    cdef int fail_inference(self, Sample sample, double now) except -1
    cdef int renew(self, Sample sample, double now) except -1
    cdef int queue_environment(self, Sample sample, double now) except -1
    cdef int queue_environment_since(self, Sample sample, double now, double since) except -1
    cdef Sample next_dispatch(self, double now)
    cdef int end_environment(self, Sample sample, double now) except -1
    cdef int fail_environment(self, Sample sample, double now) except -1
    cdef int queue_resident(self, Sample sample, double now, double since) except -1
    cdef Sample next_resident(self, double now)
    cdef int end_resident(self, Sample sample, double now) except -1
    cdef int fail_resident(self, Sample sample, double now) except -1
    cdef int complete(self, Sample sample, double now) except -1
    cdef int remove(self, Sample sample, double now) except -1
    cdef int send_back(self, Sample sample, double now) except -1

    cdef int _free(self, Sample sample, double now) except -1
    cdef int _check_time(self, double now) except -1
    cdef int _refuse(self, Sample sample, str asked, double now) except -1
    cdef int _check_since(self, Sample sample, double now, double since) except -1
    cdef int _check(self, Sample sample, Stage needed, str asked, double now) except -1
