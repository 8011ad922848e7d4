"""The HTTP client under an OpenAI client: each request is a turn, and carries the label of its sample."""

from __future__ import annotations

import threading
from typing import Any

from coresched.client.gate import Turn, sample_in_scope
from coresched_harness.held import GateFailure, held
from coresched_harness.usage import record_usage, usage_of_body


class _Refused(Exception):
    """The server answered with an error: a failed turn, and an answer for the OpenAI client to deal with."""


class Labelling:
    """Put before a client of httpx, or of its twin httpx2: each request that a sample sends is a turn.

    The OpenAI client above it sends again after some errors: each attempt is a turn of its own, a failed one
    as `failed_inference_s`, and the wait between two is in neither. A streamed answer is read to its end
    before it is passed on, since its turn lasts as long. Outside of a sample nothing is changed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sent = threading.local()

    def sent_by_this_thread(self) -> int:
        """How many requests of samples this thread has sent."""
        count: int = getattr(self._sent, "count", 0)
        return count

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        sample = sample_in_scope()
        client: Any = super()
        if sample is None:
            return client.send(request, stream=stream, **options)
        self._sent.count = self.sent_by_this_thread() + 1
        response: Any = None
        try:
            with held(sample.inference) as turn:
                _address(request, turn)
                response = client.send(request, stream=stream, **options)
                response.read()
                if not response.is_success:
                    raise _Refused
                content_type = response.headers.get("content-type", "")
                record_usage(turn, usage_of_body(content_type, response.content))
        except _Refused:
            pass
        return response


def _address(request: Any, turn: Turn) -> None:
    """Label the request, and send it to the turn's worker if it was routed."""
    request.headers.update(turn.headers)
    if turn.worker is None:
        return
    worker = type(request.url)(turn.worker)
    if worker.scheme not in ("http", "https") or not worker.host:
        raise GateFailure(
            f"the batch's worker {turn.worker!r} is no base URL such as 'http://10.0.0.1:30000'; name "
            "workers by their URLs"
        )
    request.url = request.url.copy_with(
        scheme=worker.scheme,
        host=worker.host,
        port=worker.port,
        raw_path=worker.raw_path.rstrip(b"/") + request.url.raw_path,
    )
    request.headers["Host"] = request.url.netloc.decode("ascii")
