"""The batch coordinator: which samples run, which hold a resident slot, whose environment job gets a slot.

Samples are admitted in submission order while fewer than ``C_S`` are admitted and unfinished; fewer than ``C_R``
of them become resident, first come, first served; environment jobs run while fewer than ``C_E`` do, in the order
of the policy. A sample asks for slots in this order only, so no two can wait for each other. A pure state machine:
time is an argument, nothing waits and nothing is executed here.
"""

cimport cython
from libc.float cimport DBL_MAX
from libc.math cimport NAN, fmin

from heapq import heappop, heappush

from coresched.batch.sample cimport (
    ADMITTED, ENVIRONMENT, FINISHED, INFERENCE, QUEUED, RESIDENT_QUEUED, RETURNED, WAITING, WITHDRAWN,
)

from coresched.batch.records import BatchSummary, TransitionError
from coresched.core.checks cimport check_count, check_finite, check_label

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX

# Under FCFS requests are told apart down to this, however long the run: the queue then orders by arrival alone.
cdef double ARRIVAL_BAND_S = 1e-6
cdef double LATEST_ARRIVAL_S = 1e300


@cython.final
cdef class Coordinator:
    """Coordinator(sample_concurrency, environment_concurrency=None, *, environment_policy="caas", band_s=30.0, bucket_s=1.0, resident_concurrency=None)\n--\n
    Admission of samples to ``C_S`` slots, of samples to ``C_R`` resident slots and of environment jobs to ``C_E``
    slots, with each sample's times.

    ``sample_concurrency`` is C_S, at least 1; ``environment_concurrency`` is C_E, at least 1, or None for no
    cap. ``environment_policy`` orders the environment queue: "fcfs", first come, first served, or "caas",
    ascending ``(floor(a / B), -n, floor(mean(tau) / D_I), e)``: a, the request's seconds since the first
    submit; n, the sample's completed turns; tau, their durations; B = ``band_s``, D_I = ``bucket_s``; e, the
    entry sequence. ``resident_concurrency`` is C_R, at least 1, or None for no cap: samples that hold a resident
    slot at a time, first come, first served; one is asked for between stages and kept over them.

    ``now`` is in seconds on any monotonic clock. Every step raises ValueError for a ``now`` that is not finite
    or lies before the last one, LookupError for an unknown sample and TransitionError for a step the sample's
    state does not allow; nothing is changed then. Every step takes O(log jobs queued) or less. Not for several
    threads at once.

    >>> batch = Coordinator(2, 1)
    >>> batch.submit("task-1", 0.0)
    >>> batch.admit(0.0)
    ['task-1']
    >>> batch.start_inference("task-1", 0.0)
    >>> batch.finish_inference("task-1", 1.5)
    >>> batch.request_environment("task-1", 1.5)
    >>> batch.dispatch(2.0)
    ['task-1']
    >>> batch.finish_environment("task-1", 5.0)
    >>> batch.finish("task-1", 5.0)
    >>> times = batch.times("task-1")
    >>> times.inference_s, times.environment_queue_s, times.environment_s
    (1.5, 0.5, 3.0)
    """

    def __cinit__(
        self,
        sample_concurrency,
        environment_concurrency=None,
        *,
        environment_policy="caas",
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
        self._again = []
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

    # The steps by name.

    def submit(self, sample, now):
        """Let a new sample, or one that was put back, wait for admission.

        One that was put back has its old place again, before all that were not admitted meanwhile, and begins
        a fresh trajectory: its times are those of the new attempt. Raises ValueError for any other known name.
        """
        cdef Sample known
        sample = check_label(sample, "sample")
        known = self._by_name.get(sample)
        if known is not None and known.state == RETURNED:
            self.renew(known, check_finite(now, "now"))
        else:
            self.enroll(sample, check_finite(now, "now"))

    def admit(self, now):
        """Admit the samples that C_S allows; their names, in submission order."""
        cdef double moment = check_finite(now, "now")
        cdef list admitted = []
        cdef Sample sample = self.next_admission(moment)
        while sample is not None:
            admitted.append(sample.name)
            sample = self.next_admission(moment)
        return admitted

    def start_inference(self, sample, now):
        """The model call begins. The sample must be admitted and between stages."""
        self.begin_inference(self._find(sample), check_finite(now, "now"))

    def finish_inference(self, sample, now):
        """The model call is complete: one more turn, with its observed duration."""
        self.end_inference(self._find(sample), check_finite(now, "now"))

    def cancel_inference(self, sample, now):
        """The model call failed or was given up: no turn is counted, the sample may try again."""
        self.fail_inference(self._find(sample), check_finite(now, "now"))

    def request_environment(self, sample, now, since=None):
        """Queue for an environment slot. The sample must be between stages; a turn before is not required.

        ``since``, if given: when the wait began, from the sample's admission to ``now``, for a wait that goes on
        after a break. The arrival a and the wait count from it. Raises ValueError if it is out of range.
        """
        cdef Sample found = self._find(sample)
        cdef double moment = check_finite(now, "now")
        cdef double begun = moment if since is None else check_finite(since, "since")
        self.queue_environment_since(found, moment, begun)

    def dispatch(self, now):
        """Grant the free environment slots; the samples whose job starts now, in the policy's order."""
        cdef double moment = check_finite(now, "now")
        cdef list granted = []
        cdef Sample sample = self.next_dispatch(moment)
        while sample is not None:
            granted.append(sample.name)
            sample = self.next_dispatch(moment)
        return granted

    def finish_environment(self, sample, now):
        """The environment job is complete: its slot is free."""
        self.end_environment(self._find(sample), check_finite(now, "now"))

    def cancel_environment(self, sample, now):
        """A job given up: it leaves the queue, or gives its slot back; the sample stays admitted."""
        self.fail_environment(self._find(sample), check_finite(now, "now"))

    def request_resident(self, sample, now, since=None):
        """Queue for a resident slot. The sample must be between stages and hold none.

        Asked for while the sample holds an environment slot, it could wait for a sample that waits for that one.
        ``since`` is as in request_environment.
        """
        cdef Sample found = self._find(sample)
        cdef double moment = check_finite(now, "now")
        cdef double begun = moment if since is None else check_finite(since, "since")
        self.queue_resident(found, moment, begun)

    def grant_residents(self, now):
        """Grant the free resident slots; the samples that hold one from now on, in the order of arrival."""
        cdef double moment = check_finite(now, "now")
        cdef list granted = []
        cdef Sample sample = self.next_resident(moment)
        while sample is not None:
            granted.append(sample.name)
            sample = self.next_resident(moment)
        return granted

    def finish_resident(self, sample, now):
        """The resident slot is free; the sample stays admitted. It must be between stages."""
        self.end_resident(self._find(sample), check_finite(now, "now"))

    def cancel_resident(self, sample, now):
        """Leave the queue for a resident slot, or give it back in whatever stage, which goes on."""
        self.fail_resident(self._find(sample), check_finite(now, "now"))

    def finish(self, sample, now):
        """The sample is complete: its slots are free. It must be between stages."""
        self.complete(self._find(sample), check_finite(now, "now"))

    def withdraw(self, sample, now):
        """A sample that failed or was cancelled, in any unfinished state: free whatever it holds."""
        self.remove(self._find(sample), check_finite(now, "now"))

    def put_back(self, sample, now):
        """Free whatever an unfinished sample holds: it is "returned", for another attempt, until submitted again."""
        self.send_back(self._find(sample), check_finite(now, "now"))

    # The same for compiled callers; the one implementation of every step.

    cdef Sample enroll(self, str name, double now):
        cdef Sample sample
        self._check_time(now)
        if name in self._by_name:
            raise ValueError(f"sample must be new to the batch, got {name!r}, which was submitted before")
        sample = Sample.__new__(Sample)
        sample.name = name
        sample.place = len(self._samples)
        if not self._samples:
            self._begun = now
        self._samples.append(sample)
        self._by_name[name] = sample
        sample.begin(now)
        self.waiting += 1
        self._now = now
        return sample

    cdef int renew(self, Sample sample, double now) except -1:
        self._check(sample, RETURNED, "submit", now)
        self.returned -= 1
        sample.begin(now)
        self.waiting += 1
        # Else its place is still ahead.
        if sample.place < self._next and not sample.listed:
            sample.listed = True
            heappush(self._again, sample.place)
        return 0

    cdef Sample next_admission(self, double now):
        cdef Sample sample
        self._check_time(now)
        self._now = now
        # Each place is passed once, those put back once more each time; who does not wait is stepped over.
        while self.admitted < self._sample_slots:
            if self._again:
                sample = <Sample>self._samples[heappop(self._again)]
                sample.listed = False
            elif self._next < len(self._samples):
                sample = <Sample>self._samples[self._next]
                self._next += 1
            else:
                break
            if sample.state == WAITING:
                sample.state = ADMITTED
                sample.admitted_at = now
                sample.waited_s = now - sample.submitted_at
                sample.admissions += 1
                self.waiting -= 1
                self.admitted += 1
                return sample
        return None

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

    cdef Sample _find(self, object name):
        sample = self._by_name.get(name)
        if sample is None:
            raise LookupError(f"sample must have been submitted to this batch, got {name!r}")
        return <Sample>sample

    # Reports.

    def __len__(self):
        """Samples submitted so far."""
        return len(self._samples)

    def __contains__(self, sample):
        return sample in self._by_name

    def samples(self):
        """The names of all samples, in submission order."""
        cdef Sample sample
        return [sample.name for sample in self._samples]

    def state(self, sample):
        """The sample's state, one of the strings in SampleTimes.state."""
        return self._find(sample).state_name()

    def times(self, sample):
        """Where the sample's time went so far, as SampleTimes."""
        return self._find(sample).times()

    def summary(self):
        """Counts and summed times of the whole batch, as BatchSummary. O(samples)."""
        return BatchSummary.of([self.times(name) for name in self._by_name])
