"""What the transports tell a recording of the requests that they send."""

from __future__ import annotations

import httpx

from coresched.recording.requests import AttemptRecord, RequestRecord, is_inference

_WORKER_HEADER = "x-coresched-worker"  # a gateway tells which of its workers answered


def sent(
    record: RequestRecord | None, request: httpx.Request, label: str, worker: str
) -> AttemptRecord | None:
    """The record of a request that is sent now; None if there is nothing to record."""
    if record is None or not is_inference(request.method, request.url.path):
        return None
    return record.attempt(label, worker)


def failed(attempt: AttemptRecord | None, error: BaseException) -> None:
    """The request got no answer."""
    if attempt is not None:
        attempt.ended(f"{type(error).__name__}: {error}".rstrip(": "))


def answered(attempt: AttemptRecord | None, response: httpx.Response) -> None:
    """The headers of the answer are there."""
    if attempt is not None:
        attempt.answered(response.status_code, response.headers, response.headers.get(_WORKER_HEADER))
