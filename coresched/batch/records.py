"""What the coordinator reports, and the error it raises for a step out of order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal[
    "waiting",
    "admitted",
    "inference",
    "queued",
    "environment",
    "finished",
    "withdrawn",
    "returned",
    "resident_queued",
]

IN_WORDS: dict[str, str] = {
    "waiting": "waiting for admission",
    "admitted": "admitted, between stages",
    "inference": "in an inference turn",
    "queued": "queued for an environment slot",
    "environment": "in an environment stage",
    "finished": "finished",
    "withdrawn": "withdrawn",
    "returned": "put back, for another attempt",
    "resident_queued": "queued for a resident slot",
}

STEPS_IN_WORDS = {
    "start_inference": "sample.inference()",
    "finish_inference": "the end of sample.inference()",
    "cancel_inference": "the end of sample.inference()",
    "request_environment": "sample.environment()",
    "finish_environment": "the end of sample.environment()",
    "cancel_environment": "the end of sample.environment()",
    "request_resident": "sample.resident()",
    "finish_resident": "the end of sample.resident(); leave the stage first",
    "cancel_resident": "the end of sample.resident()",
    "finish": "the end of the sample; leave the stage first",
}
"""The steps of a coordinator as a harness writes them."""

_BETWEEN_STAGES = {
    "request_resident": "holds a resident slot already",
    "finish_resident": "holds no resident slot",
    "cancel_resident": "holds no resident slot",
}
"""Why these are refused to a sample that is between stages."""

_IN_SLOT: tuple[State, ...] = ("admitted", "inference", "queued", "environment", "resident_queued")


class TransitionError(RuntimeError):
    """A step that the sample's present state does not allow; nothing was changed.

    `sample`, `state` and `asked` (the coordinator's step that was refused) are attributes.
    """

    def __init__(self, sample: str, state: State, asked: str) -> None:
        super().__init__(sample, state, asked)
        self.sample = sample
        self.state: State = state
        self.asked = asked

    def __str__(self) -> str:
        asked = STEPS_IN_WORDS.get(self.asked, self.asked)
        why = f"is {IN_WORDS[self.state]}"
        if self.state == "admitted":
            why = _BETWEEN_STAGES.get(self.asked, why)
        return f"sample {self.sample!r} {why}, which does not allow {asked}"


@dataclass(frozen=True, slots=True)
class SampleTimes:
    """Where one sample's time went. Points in time are on the caller's clock; durations are seconds.

    Sums hold stages that have ended; the part of a stage still running is not in them. The wait for an
    environment slot is in `environment_queue_s` only: `environment_s` begins at the grant of the slot.
    All but `admissions` are of the sample's last attempt, which began when it was submitted last.
    """

    sample: str
    state: State
    submitted_at: float
    admitted_at: float | None
    finished_at: float | None
    """When the sample finished or was withdrawn."""
    admission_wait_s: float
    admissions: int
    """How often the sample was admitted, in all its attempts."""
    turns: int
    """Completed inference turns."""
    inference_s: float
    """Observed duration of the completed turns; their mean is a part of the CAAS key."""
    failed_inference_s: float
    """Duration of turns that failed or were cancelled; no part of any mean."""
    environment_stages: int
    """Completed environment stages."""
    environment_queue_s: float
    """Waits for an environment slot, those given up included."""
    environment_s: float
    """Environment slots held, by stages that failed too."""
    environment_requested_at: float | None
    """The latest environment stage: when its slot was requested, granted and given back."""
    environment_started_at: float | None
    environment_ended_at: float | None
    resident_wait_s: float = 0.0
    """Waits for a resident slot, those given up included."""
    resident_s: float = 0.0
    """Resident slots held, over turns and stages: no time beside theirs."""
    resident_requested_at: float | None = None
    """The latest resident slot: when it was requested, granted and given back."""
    resident_started_at: float | None = None
    resident_ended_at: float | None = None

    @property
    def resident(self) -> bool:
        """Whether the sample holds a resident slot."""
        return self.resident_started_at is not None and self.resident_ended_at is None


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """The whole batch: how many samples are where, and the sums of their times in seconds."""

    samples: int
    waiting: int
    admitted: int
    """Samples that hold a sample slot: admitted and not yet ended, in whatever stage."""
    environment_queued: int
    environment_running: int
    finished: int
    withdrawn: int
    returned: int
    """Samples that were put back and not submitted again."""
    readmissions: int
    """Admissions of samples that had been admitted before."""
    turns: int
    environment_stages: int
    admission_wait_s: float
    inference_s: float
    failed_inference_s: float
    environment_queue_s: float
    environment_s: float
    makespan_s: float | None
    """First admission to the latest completion; None before any sample has finished."""
    resident_queued: int = 0
    """Samples that wait for a resident slot."""
    resident: int = 0
    """Samples that hold one, in whatever stage."""
    resident_wait_s: float = 0.0
    resident_s: float = 0.0

    @classmethod
    def of(cls, samples: Sequence[SampleTimes]) -> BatchSummary:
        """Counts and sums over the samples of one batch, in the given order."""
        count = Counter(times.state for times in samples)
        admissions = [times.admitted_at for times in samples if times.admitted_at is not None]
        completions = [
            times.finished_at
            for times in samples
            if times.state == "finished" and times.finished_at is not None
        ]
        return cls(
            samples=len(samples),
            waiting=count["waiting"],
            admitted=sum(count[state] for state in _IN_SLOT),
            environment_queued=count["queued"],
            environment_running=count["environment"],
            finished=count["finished"],
            withdrawn=count["withdrawn"],
            returned=count["returned"],
            readmissions=sum(max(times.admissions - 1, 0) for times in samples),
            turns=sum(times.turns for times in samples),
            environment_stages=sum(times.environment_stages for times in samples),
            admission_wait_s=sum(times.admission_wait_s for times in samples),
            inference_s=sum(times.inference_s for times in samples),
            failed_inference_s=sum(times.failed_inference_s for times in samples),
            environment_queue_s=sum(times.environment_queue_s for times in samples),
            environment_s=sum(times.environment_s for times in samples),
            makespan_s=max(completions) - min(admissions) if completions else None,
            resident_queued=count["resident_queued"],
            resident=sum(times.resident for times in samples),
            resident_wait_s=sum(times.resident_wait_s for times in samples),
            resident_s=sum(times.resident_s for times in samples),
        )
