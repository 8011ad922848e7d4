"""What a harness may have to tell apart when a batch does not go on; a TransitionError is another."""

from __future__ import annotations

from typing import Literal


class BatchClosedError(RuntimeError):
    """The batch has ended, so there is no slot to wait for any more."""


class LeaseExpiredError(RuntimeError):
    """An environment stage ran longer than its `max_s`: its slot had returned before the stage ended."""

    def __init__(self, sample: str, max_s: float) -> None:
        super().__init__(sample, max_s)
        self.sample = sample
        self.max_s = max_s

    def __str__(self) -> str:
        return (
            f"the environment stage of sample {self.sample!r} ran longer than its max_s of {self.max_s:g} s, "
            "and its slot went to the next; end the job in time, or allow more"
        )


class SampleEndedError(RuntimeError):
    """The sample ended before this process entered it, perhaps in an earlier run of the harness: skip it.

    `sample` and `state` ("finished" or "withdrawn") are attributes.
    """

    def __init__(self, sample: str, state: Literal["finished", "withdrawn"]) -> None:
        super().__init__(sample, state)
        self.sample = sample
        self.state: Literal["finished", "withdrawn"] = state

    def __str__(self) -> str:
        return f"sample {self.sample!r} is {self.state} already; skip it, or give a retry an id of its own"


class SampleTakenError(RuntimeError):
    """Another process runs the sample or waits for its admission: skip it."""

    def __init__(self, sample: str) -> None:
        super().__init__(sample)
        self.sample = sample

    def __str__(self) -> str:
        return (
            f"sample {self.sample!r} is claimed by another session of the batch; let processes that share a "
            "list of tasks take them from admissions()"
        )


class ServiceError(RuntimeError):
    """The service refused a call or did not answer. `code` is the name of the gRPC status."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message, code)
        self.message = message
        self.code = code

    def __str__(self) -> str:
        return self.message


class ServiceLimitError(ServiceError):
    """A limit of the service is reached; the message names it."""


class SessionLostError(ServiceError):
    """The session has ended: the service, or this process, has not heard from the other for `grace_s`.

    What the session held went back, and its samples may run elsewhere by now.
    """
