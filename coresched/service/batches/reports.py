"""Where a batch and its samples stand, as messages."""

from __future__ import annotations

from coresched.batch.records import State
from coresched.service.batches.batch import Batch
from coresched.service.batches.samples import SampleRecord
from coresched.v1 import batches_pb2 as pb

STATES: dict[State, pb.SampleState] = {
    "returned": pb.SAMPLE_STATE_OPEN,
    "waiting": pb.SAMPLE_STATE_WAITING,
    "admitted": pb.SAMPLE_STATE_ADMITTED,
    "inference": pb.SAMPLE_STATE_INFERENCE,
    "queued": pb.SAMPLE_STATE_QUEUED,
    "environment": pb.SAMPLE_STATE_ENVIRONMENT,
    "finished": pb.SAMPLE_STATE_FINISHED,
    "withdrawn": pb.SAMPLE_STATE_WITHDRAWN,
    "resident_queued": pb.SAMPLE_STATE_RESIDENT_QUEUED,
}


def progress(batch: Batch, now: float) -> pb.BatchProgress:
    """The whole batch at `now`, in O(1)."""
    coordinator, totals, chains = batch.coordinator, batch.totals, batch.chains
    oldest, abandoned_at = chains.oldest(), batch.abandoned_at
    makespan = None
    if totals.last_completion_at is not None and totals.first_admission_at is not None:
        makespan = totals.last_completion_at - totals.first_admission_at
    return pb.BatchProgress(
        batch=batch.name,
        closed=batch.closed_at is not None,
        sessions=len(batch.sessions),
        samples=len(batch.in_order),
        open=len(batch.open),
        waiting=coordinator.waiting,
        admitted=coordinator.admitted,
        environment_queued=coordinator.environment_queued,
        environment_running=coordinator.environment_running,
        finished=coordinator.finished,
        withdrawn=batch.withdrawn,
        turns=totals.turns,
        environment_stages=totals.environment_stages,
        admission_wait_s=totals.admission_wait_s,
        inference_s=totals.inference_s,
        failed_inference_s=totals.failed_inference_s,
        environment_queue_s=totals.environment_queue_s,
        environment_s=totals.environment_s,
        makespan_s=makespan,
        elapsed_s=(now if batch.closed_at is None else batch.closed_at) - batch.opened_at,
        readmissions=totals.readmissions,
        options=batch.options.message(),
        inference=chains.inference,
        admitted_by_turns=chains.by_depth,
        oldest_environment_wait_s=None if oldest is None else now - oldest,
        abandoned_s=None if abandoned_at is None else now - abandoned_at,
        resident_queued=coordinator.resident_queued,
        resident=coordinator.resident,
        resident_wait_s=totals.resident_wait_s,
        resident_s=totals.resident_s,
    )


def sample_report(batch: Batch, record: SampleRecord) -> pb.SampleReport:
    """Where one sample's time went; points in time count from the opening of the batch."""
    opened_at = batch.opened_at

    def since_opening(moment: float | None) -> float | None:
        return None if moment is None else moment - opened_at

    state = STATES[batch.state(record)]
    if record.name not in batch.coordinator:
        ended_at = batch.closed_at if state == pb.SAMPLE_STATE_WITHDRAWN else None
        return pb.SampleReport(
            sample=record.name,
            state=state,
            submitted_at_s=record.submitted_at - opened_at,
            ended_at_s=since_opening(ended_at),
        )
    times = batch.coordinator.times(record.name)
    return pb.SampleReport(
        sample=record.name,
        state=state,
        submitted_at_s=record.submitted_at - opened_at,
        admitted_at_s=since_opening(times.admitted_at),
        ended_at_s=since_opening(times.finished_at),
        admission_wait_s=times.admission_wait_s,
        turns=times.turns,
        inference_s=times.inference_s,
        failed_inference_s=times.failed_inference_s,
        environment_stages=times.environment_stages,
        environment_queue_s=times.environment_queue_s,
        environment_s=times.environment_s,
        admissions=times.admissions,
        environment_requested_at_s=since_opening(times.environment_requested_at),
        environment_started_at_s=since_opening(times.environment_started_at),
        environment_ended_at_s=since_opening(times.environment_ended_at),
        resident_wait_s=times.resident_wait_s,
        resident_s=times.resident_s,
        resident_requested_at_s=since_opening(times.resident_requested_at),
        resident_started_at_s=since_opening(times.resident_started_at),
        resident_ended_at_s=since_opening(times.resident_ended_at),
    )
