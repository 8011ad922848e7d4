"""tau2's model calls: the agent's are turns, and all of a simulation carry a label."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpx
import litellm
from coresched_harness.held import GateFailure, held
from coresched_harness.labelled import Labelling
from coresched_harness.usage import record_usage, usage_of_answer
from tau2.utils import llm_utils

from coresched.client.gate import Sample, sample_in_scope
from coresched.client.turn import ROUTING_HEADER, SESSION_HEADER

AGENT = "agent"
USER = "user"
EVALUATION = "evaluation"
"""Who calls: the evaluation's judges and reviewers do when neither of the others does."""

_caller: ContextVar[str] = ContextVar("coresched_tau2_caller", default=EVALUATION)


@contextmanager
def calling(who: str) -> Iterator[None]:
    """Model calls of the block are those of `who`."""
    before = _caller.set(who)
    try:
        yield
    finally:
        _caller.reset(before)


def _label(sample: Sample) -> dict[str, str]:
    """Headers of a call that is no turn: what it sends has another beginning than what the agent sends."""
    label = f"{sample.id}/{_caller.get()}"
    return {ROUTING_HEADER: label, SESSION_HEADER: label}


class LabellingClient(Labelling, httpx.Client):
    """litellm's HTTP client for OpenAI-compatible servers: the agent's requests are turns."""

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        sample = sample_in_scope()
        if sample is None or _caller.get() == AGENT:
            return super().send(request, stream=stream, **options)
        request.headers.update(_label(sample))
        return httpx.Client.send(self, request, stream=stream, **options)


class Calls:
    """The calls of `tau2.utils.llm_utils.completion`, which is litellm's.

    Those to `openai/...` models pass a LabellingClient. Of other providers litellm takes headers, and a turn
    is a whole call of it, retries and their waits included.
    """

    def __init__(self) -> None:
        self._completion = llm_utils.completion
        self._session = litellm.client_session
        # tau2's own has 10 connections, by which no more requests would be under way, whatever C_S is.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._http = LabellingClient(limits=limits)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """tau2 and litellm use these for the block."""
        llm_utils.completion = self.completion
        litellm.client_session = self._http
        try:
            yield
        finally:
            llm_utils.completion = self._completion
            litellm.client_session = self._session

    def completion(self, *arguments: Any, model: str, **options: Any) -> Any:
        """litellm's `completion`."""
        sample = sample_in_scope()
        if sample is None or _provider(model, options) == "openai":
            return self._completion(*arguments, model=model, **options)
        headers = dict(options.pop("extra_headers", None) or {})
        if _caller.get() != AGENT:
            headers |= _label(sample)
            return self._completion(*arguments, model=model, extra_headers=headers, **options)
        with held(sample.inference) as turn:
            if turn.worker is not None:
                raise GateFailure(f"{model} cannot be routed among the batch's workers; name it openai/...")
            headers |= turn.headers
            answer = self._completion(*arguments, model=model, extra_headers=headers, **options)
            record_usage(turn, usage_of_answer(answer))
            return answer


def _provider(model: str, options: dict[str, Any]) -> str:
    provider: str = litellm.get_llm_provider(
        model, custom_llm_provider=options.get("custom_llm_provider"), api_base=options.get("api_base")
    )[1]
    return provider
