"""Every step of a batch, once, on its samples: what the coordinator does by name.

A pure state machine: time is an argument, nothing waits and nothing is executed here.
"""

from libc.float cimport DBL_MAX
from libc.math cimport NAN, fmin

from coresched.batch.sample cimport (
    ADMITTED, ENVIRONMENT, FINISHED, INFERENCE, QUEUED, RESIDENT_QUEUED, RETURNED, WAITING, WITHDRAWN,
)

from coresched.batch.records import TransitionError
from coresched.core.checks cimport check_count

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX

# Under FCFS requests are told apart down to this, however long the run: the queue then orders by arrival alone.
cdef double ARRIVAL_BAND_S = 1e-6
cdef double LATEST_ARRIVAL_S = 1e300


cdef class BatchSteps:
    """The state of a batch and its steps, for compiled callers; the arguments are those of Coordinator.

    A Sample belongs to the batch that enrolled it and is never None here. A step raises ValueError for a ``now``
    that is not finite or lies before the last one, and TransitionError for a state that does not allow it;
    nothing is changed then.
    """

    def __cinit__(
        self,
        sample_concurrency,
        environment_concurrency=None,
        *,
        environment_policy="caas",
        admission_policy="submission",
        band_s=30.0,
        bucket_s=1.0,
        resident_concurrency=None,
    ):
        cdef Py_ssize_t residents = PY_SSIZE_T_MAX
        self._sample_slots = check_count(sample_concurrency, "sample_concurrency", 1)
        self._environment_slots = PY_SSIZE_T_MAX  # no cap
        if environment_concurrency is not None:
            self._environment_slots = check_count(environment_concurrency, "environment_concurrency", 1)
        if environment_policy not in ("fcfs", "caas"):
            raise ValueError(f'environment_policy must be "fcfs" or "caas", got {environment_policy!r}')
        self._order = AdmissionOrder(admission_policy)
        self.admission_policy = admission_policy
        self.environment_concurrency = environment_concurrency
        self.environment_policy = environment_policy
        self._by_depth = environment_policy == "caas"
        self._queue = ChainAdvancingQueue(band_s, bucket_s)
        self.band_s = self._queue.band_s
        self.bucket_s = self._queue.bucket_s
        if not self._by_depth:
            self._queue = ChainAdvancingQueue(ARRIVAL_BAND_S)
        if resident_concurrency is not None:
            residents = check_count(resident_concurrency, "resident_concurrency", 1)
        self.resident_concurrency = resident_concurrency
        self._residents = ResidentSlots(residents, ARRIVAL_BAND_S)
        self._samples = []
        self._by_name = {}
        self._begun = 0.0
        self._now = -DBL_MAX

    @property
    def sample_concurrency(self):
        """C_S."""
        return self._sample_slots

    @property
    def resident_queued(self):
        """Samples that wait for a resident slot."""
        return self._residents.queued

    @property
    def resident(self):
        """Samples that hold a resident slot, at most C_R."""
        return self._residents.held

    cdef Sample enroll(self, str name, double now, double expected=NAN):
        cdef Sample sample
        self._check_time(now)
        if name in self._by_name:
            raise ValueError(f"sample must be new to the batch, got {name!r}, which was submitted before")
        sample = Sample.__new__(Sample)
        sample.name = name
        sample.place = len(self._samples)
        sample.expected = expected
        if not self._samples:
            self._begun = now
        self._samples.append(sample)
        self._by_name[name] = sample
        sample.begin(now)
        self._order.enter(sample)
        self.waiting += 1
        self._now = now
        return sample

    cdef int renew(self, Sample sample, double now) except -1:
        self._check(sample, RETURNED, "submit", now)
        self.returned -= 1
        sample.begin(now)
        self._order.enter_again(sample)
        self.waiting += 1
        return 0

    cdef Sample next_admission(self, double now):
        cdef Sample sample
        self._check_time(now)
        self._now = now
        if self.admitted >= self._sample_slots:
            return None
        sample = self._order.next()
        if sample is not None:
            sample.state = ADMITTED
            sample.admitted_at = now
            sample.waited_s = now - sample.submitted_at
            sample.admissions += 1
            self.waiting -= 1
            self.admitted += 1
        return sample

    cdef int begin_inference(self, Sample sample, double now) except -1:
        self._check(sample, ADMITTED, "start_inference", now)
        sample.state = INFERENCE
        sample.began_at = now
        return 0

    cdef int end_inference(self, Sample sample, double now) except -1:
        self._check(sample, INFERENCE, "finish_inference", now)
        sample.state = ADMITTED
        sample.turns += 1
        sample.inference_s += now - sample.began_at
        return 0

    cdef int fail_inference(self, Sample sample, double now) except -1:
        self._check(sample, INFERENCE, "cancel_inference", now)
        sample.state = ADMITTED
        sample.failed_inference_s += now - sample.began_at
        return 0

    cdef int queue_environment(self, Sample sample, double now) except -1:
        return self.queue_environment_since(sample, now, now)

    cdef int queue_environment_since(self, Sample sample, double now, double since) except -1:
        cdef double mean = 0.0
        self._check_since(sample, now, since)
        self._check(sample, ADMITTED, "request_environment", now)
        if self._by_depth:
            if sample.turns:
                mean = sample.inference_s / sample.turns
            self._queue.enter(sample, since - self._begun, sample.turns, mean)
        else:
            # By arrival, and within its narrow band by entry: first come, first served.
            self._queue.enter(sample, fmin(since - self._begun, LATEST_ARRIVAL_S), 0, 0.0)
        sample.state = QUEUED
        sample.requested_at = since
        sample.started_at = NAN
        sample.ended_at = NAN
        self.environment_queued += 1
        return 0

    cdef Sample next_dispatch(self, double now):
        cdef Sample sample
        self._check_time(now)
        self._now = now
        if self.environment_queued == 0 or self.environment_running >= self._environment_slots:
            return None
        sample = <Sample>self._queue.pop()
        sample.state = ENVIRONMENT
        sample.started_at = now
        sample.environment_queue_s += now - sample.requested_at
        self.environment_queued -= 1
        self.environment_running += 1
        return sample

    cdef int end_environment(self, Sample sample, double now) except -1:
        self._check(sample, ENVIRONMENT, "finish_environment", now)
        self.environment_running -= 1
        sample.state = ADMITTED
        sample.stages += 1
        sample.ended_at = now
        sample.environment_s += now - sample.started_at
        return 0

    cdef int fail_environment(self, Sample sample, double now) except -1:
        if sample.state == QUEUED:
            self._check(sample, QUEUED, "cancel_environment", now)
            self._queue.discard(sample)
            self.environment_queued -= 1
            sample.environment_queue_s += now - sample.requested_at
        else:
            self._check(sample, ENVIRONMENT, "cancel_environment", now)
            self.environment_running -= 1
            sample.ended_at = now
            sample.environment_s += now - sample.started_at
        sample.state = ADMITTED
        return 0

    cdef int queue_resident(self, Sample sample, double now, double since) except -1:
        self._check_since(sample, now, since)
        if sample.resident:
            self._refuse(sample, "request_resident", now)
        self._check(sample, ADMITTED, "request_resident", now)
        self._residents.enter(sample, since, fmin(since - self._begun, LATEST_ARRIVAL_S))
        sample.state = RESIDENT_QUEUED
        return 0

    cdef Sample next_resident(self, double now):
        cdef Sample sample
        self._check_time(now)
        self._now = now
        sample = self._residents.next_grant(now)
        if sample is not None:
            sample.state = ADMITTED
        return sample

    cdef int end_resident(self, Sample sample, double now) except -1:
        if not sample.resident:
            self._refuse(sample, "finish_resident", now)
        self._check(sample, ADMITTED, "finish_resident", now)
        self._residents.give_back(sample, now)
        return 0

    cdef int fail_resident(self, Sample sample, double now) except -1:
        if sample.state == RESIDENT_QUEUED:
            self._check(sample, RESIDENT_QUEUED, "cancel_resident", now)
            self._residents.leave(sample, now)
            sample.state = ADMITTED
        elif sample.resident:
            self._check(sample, sample.state, "cancel_resident", now)
            self._residents.give_back(sample, now)
        else:
            self._refuse(sample, "cancel_resident", now)
        return 0

    cdef int complete(self, Sample sample, double now) except -1:
        self._check(sample, ADMITTED, "finish", now)
        if sample.resident:
            self._residents.give_back(sample, now)
        sample.state = FINISHED
        sample.finished_at = now
        self.admitted -= 1
        self.finished += 1
        return 0

    cdef int remove(self, Sample sample, double now) except -1:
        if sample.state == FINISHED or sample.state == WITHDRAWN:
            self._refuse(sample, "withdraw", now)
        self._free(sample, now)
        sample.state = WITHDRAWN
        sample.finished_at = now
        self.withdrawn += 1
        return 0

    cdef int send_back(self, Sample sample, double now) except -1:
        if sample.state == FINISHED or sample.state == WITHDRAWN or sample.state == RETURNED:
            self._refuse(sample, "put_back", now)
        self._free(sample, now)
        sample.state = RETURNED
        self.returned += 1
        return 0

    cdef int _free(self, Sample sample, double now) except -1:
        """Give up whatever an unfinished sample holds or waits for."""
        self._check_time(now)
        if sample.state == WAITING:
            self.waiting -= 1
            sample.waited_s = now - sample.submitted_at
        elif sample.state == RETURNED:
            self.returned -= 1
        else:
            if sample.state == INFERENCE:
                self.fail_inference(sample, now)
            elif sample.state == QUEUED or sample.state == ENVIRONMENT:
                self.fail_environment(sample, now)
            if sample.resident or sample.state == RESIDENT_QUEUED:
                self.fail_resident(sample, now)
            self.admitted -= 1
        self._now = now
        return 0

    cdef inline int _check_time(self, double now) except -1:
        # The second part fails for NaN, infinities and clocks so far apart that durations would overflow.
        if not (now >= self._now and now - self._begun <= DBL_MAX):
            if self._now == -DBL_MAX:
                raise ValueError(f"now must be a finite number of seconds, got {now!r}")
            raise ValueError(
                f"now must be a finite number of seconds, not before the last step's {self._now!r}, got {now!r}"
            )
        return 0

    cdef int _check_since(self, Sample sample, double now, double since) except -1:
        if sample.state == ADMITTED and not sample.admitted_at <= since <= now:
            self._check_time(now)
            raise ValueError(
                f"since must be from the admission, {sample.admitted_at!r}, to now, {now!r}, got {since!r}"
            )
        return 0

    cdef inline int _check(self, Sample sample, Stage needed, str asked, double now) except -1:
        self._check_time(now)
        if sample.state != needed:
            self._refuse(sample, asked, now)
        self._now = now
        return 0

    cdef int _refuse(self, Sample sample, str asked, double now) except -1:
        self._check_time(now)
        raise TransitionError(sample.name, sample.state_name(), asked)
