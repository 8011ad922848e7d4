"""The HTTP client under an OpenAI client: each request is a turn, and carries the label of its sample."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from coresched.client.gate import Turn, sample_in_scope
from coresched_harness.held import GateFailure, held


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
                record_usage(turn, _usage(response.text))
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


def record_usage(turn: Turn, usage: Mapping[str, Any] | None) -> None:
    """Tell the turn the tokens that an answer counts, in either of OpenAI's forms, where it does."""
    if usage is None or not hasattr(turn, "usage"):
        return
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    with suppress(TypeError, ValueError):  # a server that counts wrongly has answered all the same
        turn.usage(
            prompt_tokens=usage.get("prompt_tokens", usage.get("input_tokens")),
            cached_tokens=details.get("cached_tokens"),
            output_tokens=usage.get("completion_tokens", usage.get("output_tokens")),
        )


def _usage(text: str) -> Mapping[str, Any] | None:
    """The `usage` of an answer, of its last event that has one if it was streamed."""
    found = None
    lines = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
    for line in lines:
        if '"usage"' in line:
            try:
                body = json.loads(line)
            except ValueError:
                continue
            found = body.get("usage") or (body.get("response") or {}).get("usage") or found
    return found
