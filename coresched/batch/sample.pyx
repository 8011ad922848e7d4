"""One sample as the coordinator keeps it: its stage, and where the time of its present attempt went."""

cimport cython
from libc.math cimport NAN, isnan

from coresched.batch.records import SampleTimes

cdef tuple STATES = ("waiting", "admitted", "inference", "queued", "environment", "finished", "withdrawn",
                     "returned", "resident_queued")


cdef inline object seconds(double value):
    return None if isnan(value) else value


@cython.final
cdef class Sample:
    """One sample inside a coordinator; for compiled callers. Python callers name samples by their string."""

    def __init__(self):
        raise TypeError("a Sample is made by Coordinator.submit, not directly")

    cdef void begin(self, double now) noexcept:
        """Wait for admission, with no time spent and no turn made yet."""
        self.state = WAITING
        self.submitted_at = now
        self.admitted_at = self.finished_at = NAN
        self.requested_at = self.started_at = self.ended_at = NAN
        self.turns = self.stages = 0
        self.waited_s = 0.0
        self.inference_s = self.failed_inference_s = 0.0
        self.environment_queue_s = self.environment_s = 0.0
        self.resident = False
        self.resident_requested_at = self.resident_started_at = self.resident_ended_at = NAN
        self.resident_wait_s = self.resident_s = 0.0

    cdef str state_name(self):
        return <str>STATES[<int>self.state]

    cdef object times(self):
        return SampleTimes(
            sample=self.name,
            state=self.state_name(),
            submitted_at=self.submitted_at,
            admitted_at=seconds(self.admitted_at),
            finished_at=seconds(self.finished_at),
            admission_wait_s=self.waited_s,
            admissions=self.admissions,
            turns=self.turns,
            inference_s=self.inference_s,
            failed_inference_s=self.failed_inference_s,
            environment_stages=self.stages,
            environment_queue_s=self.environment_queue_s,
            environment_s=self.environment_s,
            environment_requested_at=seconds(self.requested_at),
            environment_started_at=seconds(self.started_at),
            environment_ended_at=seconds(self.ended_at),
            resident_wait_s=self.resident_wait_s,
            resident_s=self.resident_s,
            resident_requested_at=seconds(self.resident_requested_at),
            resident_started_at=seconds(self.resident_started_at),
            resident_ended_at=seconds(self.resident_ended_at),
        )
