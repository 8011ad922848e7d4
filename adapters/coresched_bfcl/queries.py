"""A handler's model calls as turns: each HTTP request where its client can be labelled, else each query."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import openai
from coresched_harness.held import GateFailure, held
from coresched_harness.labelled import Labelling
from coresched_harness.run import say

from coresched.client.gate import sample_in_scope
from coresched.errors import InputError


class LabellingClient(Labelling, openai.DefaultHttpxClient):
    """OpenAI's own HTTP client, of whichever library its release uses."""


class Queries:
    """The queries of one handler.

    bfcl's handlers that send through an `openai.OpenAI` client, those of local engines among them, get their
    labels there, request by request. Another handler's query is one turn, without a label and with the waits
    of its retries. Raises InputError for one of these where requests have to be routed.
    """

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self._lock = threading.Lock()
        self._http: LabellingClient | None = None
        client = getattr(handler, "client", None)
        if isinstance(client, openai.OpenAI):
            self._http = LabellingClient(timeout=client.timeout)
            handler.client = client.with_options(http_client=self._http)
        else:
            self._unlabelled()

    def install(self) -> None:
        """Have the handler's queries pass here."""
        for name in ("_query_FC", "_query_prompting"):
            setattr(self._handler, name, partial(self._query, getattr(self._handler, name)))

    def _unlabelled(self) -> None:
        name = type(self._handler).__name__
        if os.environ.get("CORESCHED_WORKERS"):
            raise InputError(
                f"bfcl's {name} sends by other means than an OpenAI client: its requests cannot be routed; "
                "unset CORESCHED_WORKERS, or choose a model with another handler"
            )
        say(
            f"warning: bfcl's {name} sends by other means than an OpenAI client: its requests carry no "
            "label, and a turn is a whole query, retries and their waits included"
        )

    def _leave_unlabelled(self) -> None:
        with self._lock:
            known, self._http = self._http is None, None
        if known:
            return
        try:
            self._unlabelled()
        except InputError as error:  # too late for bfcl, which would write it into a row
            raise GateFailure(str(error)) from None

    def _query(self, query: Callable[[Any], Any], inference_data: Any) -> Any:
        sample = sample_in_scope()
        if sample is None:
            return query(inference_data)
        http = self._http
        if http is not None:
            before = http.sent_by_this_thread()
            answer = query(inference_data)
            if http.sent_by_this_thread() == before:  # it has a client beside the one that was found
                self._leave_unlabelled()
            return answer
        with held(sample.inference) as turn:
            if turn.worker is not None:
                raise GateFailure(
                    f"bfcl's {type(self._handler).__name__} cannot be routed, and the batch has workers"
                )
            return query(inference_data)
