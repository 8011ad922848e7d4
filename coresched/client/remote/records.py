"""The service's messages as the records that an embedded batch reports."""

from __future__ import annotations

from typing import Any, Literal

from coresched.batch.records import BatchSummary, SampleTimes, State
from coresched.client.local import BatchReport
from coresched.v1 import batches_pb2 as pb

STATES: dict[int, State] = {
    pb.SAMPLE_STATE_OPEN: "returned",
    pb.SAMPLE_STATE_WAITING: "waiting",
    pb.SAMPLE_STATE_ADMITTED: "admitted",
    pb.SAMPLE_STATE_INFERENCE: "inference",
    pb.SAMPLE_STATE_QUEUED: "queued",
    pb.SAMPLE_STATE_ENVIRONMENT: "environment",
    pb.SAMPLE_STATE_FINISHED: "finished",
    pb.SAMPLE_STATE_WITHDRAWN: "withdrawn",
    pb.SAMPLE_STATE_RESIDENT_QUEUED: "resident_queued",
}

ENDED: dict[int, Literal["finished", "withdrawn"]] = {
    pb.SAMPLE_STATE_FINISHED: "finished",
    pb.SAMPLE_STATE_WITHDRAWN: "withdrawn",
}


def _given(message: Any, field: str) -> float | None:
    return getattr(message, field) if message.HasField(field) else None


def summary(progress: pb.BatchProgress) -> BatchSummary:
    return BatchSummary(
        samples=progress.samples,
        waiting=progress.waiting,
        admitted=progress.admitted,
        environment_queued=progress.environment_queued,
        environment_running=progress.environment_running,
        finished=progress.finished,
        withdrawn=progress.withdrawn,
        returned=progress.open,
        readmissions=progress.readmissions,
        turns=progress.turns,
        environment_stages=progress.environment_stages,
        admission_wait_s=progress.admission_wait_s,
        inference_s=progress.inference_s,
        failed_inference_s=progress.failed_inference_s,
        environment_queue_s=progress.environment_queue_s,
        environment_s=progress.environment_s,
        makespan_s=_given(progress, "makespan_s"),
        resident_queued=progress.resident_queued,
        resident=progress.resident,
        resident_wait_s=progress.resident_wait_s,
        resident_s=progress.resident_s,
    )


def times(report: pb.SampleReport) -> SampleTimes:
    return SampleTimes(
        sample=report.sample,
        state=STATES[report.state],
        submitted_at=report.submitted_at_s,
        admitted_at=_given(report, "admitted_at_s"),
        finished_at=_given(report, "ended_at_s"),
        admission_wait_s=report.admission_wait_s,
        admissions=report.admissions,
        turns=report.turns,
        inference_s=report.inference_s,
        failed_inference_s=report.failed_inference_s,
        environment_stages=report.environment_stages,
        environment_queue_s=report.environment_queue_s,
        environment_s=report.environment_s,
        environment_requested_at=_given(report, "environment_requested_at_s"),
        environment_started_at=_given(report, "environment_started_at_s"),
        environment_ended_at=_given(report, "environment_ended_at_s"),
        resident_wait_s=report.resident_wait_s,
        resident_s=report.resident_s,
        resident_requested_at=_given(report, "resident_requested_at_s"),
        resident_started_at=_given(report, "resident_started_at_s"),
        resident_ended_at=_given(report, "resident_ended_at_s"),
    )


class ReportPages:
    """A report, page by page: send `request`, `add` the answer, until it says that it was the last."""

    def __init__(self, batch: str) -> None:
        self._batch = batch
        self._pages: list[pb.GetReportResponse] = []

    def request(self) -> pb.GetReportRequest:
        after = self._pages[-1].samples[-1].sample if self._pages else ""
        return pb.GetReportRequest(batch=self._batch, after=after)

    def add(self, page: pb.GetReportResponse) -> bool:
        self._pages.append(page)
        return not page.more

    def report(self) -> BatchReport:
        return BatchReport(
            totals=summary(self._pages[-1].progress),
            samples={report.sample: times(report) for page in self._pages for report in page.samples},
        )
