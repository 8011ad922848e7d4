"""What became of a request."""

from array import array
from dataclasses import dataclass, field
from typing import Any

from coresched_simdevice.virtual.clock import UNSET_BEFORE


@dataclass(frozen=True, slots=True)
class Finished:
    """One request from its submission to its end. Times are virtual seconds, of SGLang's own stamps."""

    request_id: str
    label: str | None
    submitted_s: float
    """When it reached the scheduler's socket; the scheduler looks there between two steps."""
    queued_s: float | None
    """When it joined the waiting queue, the last time if it was retracted."""
    started_s: float | None
    """When it was first admitted into a batch; None: never, as it was aborted."""
    first_token_s: float | None
    finished_s: float
    queue_s: float
    """Time in the waiting queue, after retractions too."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens found in the cache when it was first admitted."""
    output_ids: "array[int]"
    retractions: int
    aborted: str | None
    """SGLang's message if the request was aborted or refused, else None."""


@dataclass(slots=True)
class Live:
    """A request that has not ended, and what it has put out so far."""

    request_id: str
    label: str | None
    submitted_s: float
    prompt_tokens: int
    output_ids: "array[int]" = field(default_factory=lambda: array("q"))

    def finished(self, output: Any, row: int, stamps: Any, now: float) -> Finished:
        """Its record, from the row of SGLang's ``BatchTokenIDOutput`` with which it ends."""
        reason = output.finished_reasons[row]
        return Finished(
            request_id=self.request_id,
            label=self.label,
            submitted_s=self.submitted_s,
            queued_s=stamped(stamps.wait_queue_entry_time),
            started_s=stamped(stamps.forward_entry_time),
            first_token_s=stamped(stamps.prefill_finished_time),
            finished_s=now,
            queue_s=stamps.queue_duration_s,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=output.cached_tokens[row],
            output_ids=self.output_ids,
            retractions=output.retraction_counts[row],
            aborted=_abort_message(reason),
        )

    def aborted_in_queue(self, reason: Any, now: float) -> Finished:
        """Its record if it was taken out of the waiting queue."""
        return Finished(
            request_id=self.request_id,
            label=self.label,
            submitted_s=self.submitted_s,
            queued_s=None,
            started_s=None,
            first_token_s=None,
            finished_s=now,
            queue_s=0.0,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=0,
            output_ids=self.output_ids,
            retractions=0,
            aborted=_abort_message(reason) or "aborted in the waiting queue",
        )


def stamped(stamp: float) -> float | None:
    """A time stamp of SGLang, to which 0.0 is not set."""
    return None if stamp == 0.0 else 0.0 if stamp <= UNSET_BEFORE else stamp


def _abort_message(reason: Any) -> str | None:
    """Of a finish reason in SGLang's JSON form."""
    if reason is None or reason.get("type") != "abort":
        return None
    return str(reason.get("message") or "aborted")
