"""The batch coordinator: which samples run, which hold a resident slot, whose environment job gets a slot.

Samples are admitted in the order of a policy while fewer than ``C_S`` are admitted and unfinished; fewer than
``C_R`` of them become resident, first come, first served; environment jobs run while fewer than ``C_E`` do, in the
order of another policy. A sample asks for slots in this order only, so no two can wait for each other. A pure
state machine: time is an argument, nothing waits and nothing is executed here.
"""

cimport cython

from coresched.batch.admission import check_expected
from coresched.batch.records import BatchSummary
from coresched.core.checks cimport check_finite, check_label


@cython.final
cdef class Coordinator(BatchSteps):
    """Coordinator(sample_concurrency, environment_concurrency=None, *, environment_policy="caas", admission_policy="submission", band_s=30.0, bucket_s=1.0, resident_concurrency=None)\n--\n
    Admission of samples to ``C_S`` slots, of samples to ``C_R`` resident slots and of environment jobs to ``C_E``
    slots, with each sample's times.

    ``sample_concurrency`` is C_S, at least 1; ``environment_concurrency`` is C_E, at least 1, or None for no
    cap. ``environment_policy`` orders the environment queue: "fcfs", first come, first served, or "caas",
    ascending ``(floor(a / B), -n, floor(mean(tau) / D_I), e)``: a, the request's seconds since the first
    submit; n, the sample's completed turns; tau, their durations; B = ``band_s``, D_I = ``bucket_s``; e, the
    entry sequence. ``admission_policy`` orders the samples that wait for admission: "submission", in the order in
    which they were submitted, or "longest-expected-first", by the lengths that `submit` was told, those without one
    like the median of the others, equal ones in submission order. ``resident_concurrency`` is C_R, at least 1, or
    None for no cap: samples that hold a resident slot at a time, first come, first served; one is asked for between
    stages and kept over them.

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

    # The steps by name.

    def submit(self, sample, now, expected=None):
        """Let a new sample, or one that was put back, wait for admission.

        ``expected`` is how long the sample is expected to be, 0 or more, in a unit that is the same for the whole
        batch: seconds, turns or tokens; None where nothing is known. Submission order does not read it.

        One that was put back has its old place again, one that had been admitted before all that were not, and
        begins a fresh trajectory: its times are those of the new attempt, while what is expected of it stays what its
        first submit said. Raises ValueError for any other known name, and for an ``expected`` that is negative or not
        finite.
        """
        cdef Sample known
        check_expected(expected)
        sample = check_label(sample, "sample")
        known = self._by_name.get(sample)
        if known is not None and known.state == RETURNED:
            self.renew(known, check_finite(now, "now"))
        else:
            self.enroll(sample, check_finite(now, "now"), expected)

    def admit(self, now):
        """Admit the samples that C_S allows; their names, in the order of the policy."""
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

    def dispatch_sample(self, sample, now):
        """Grant a free environment slot to this queued sample, whatever its place: for who has an order of its own.

        Raises ValueError when no slot is free.
        """
        self.dispatch_one(self._find(sample), check_finite(now, "now"))

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
