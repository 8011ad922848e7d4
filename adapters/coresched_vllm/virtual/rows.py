"""What a worker knows of its requests from vLLM's scheduler alone: what each row of a step computes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from coresched_engine.virtual.forward import Forward


@dataclass
class Row:
    """One request that the scheduler has admitted. Sizes are in tokens, of prompt and output together."""

    prompt: int
    draws: Random
    """Its output."""
    queued_s: float
    """When it joined the waiting queue, the last time if it was preempted."""
    known: int = 0
    """All that can be computed before another token is sampled."""
    computed: int = 0
    to_prefill: int = 0
    """What was known when it was admitted, the last time; behind it are its decode steps."""
    waited_s: float = 0.0
    preemptions: int = 0


class Rows:
    """The requests of one engine, with outputs drawn from ``vocabulary`` tokens by the requests' ids."""

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._rows: dict[str, Row] = {}
        self.prefilled_tokens = 0
        """Prompt tokens computed, and all that were computed again after preemptions."""

    def queued(self, request_id: str, prompt_tokens: int, t: float) -> None:
        """A request has joined the waiting queue at ``t``."""
        self._rows[request_id] = Row(prompt_tokens, Random(f"reply {request_id}"), t)

    def ended(self, request_id: str) -> Row:
        """Forget a request that has ended; what was known of it."""
        return self._rows.pop(request_id)

    def step(self, output: Any, now: float) -> tuple[dict[str, list[int]], Forward]:
        """The tokens sampled by a step that is scheduled at ``now``, and what it computes.

        ``output`` is vLLM's SchedulerOutput. A request has a token where all that is known of it is computed.
        """
        for request_id in output.preempted_req_ids or ():
            row = self._rows[request_id]
            row.preemptions += 1
            row.queued_s = now
        admitted = self._admit(output, now)
        sampled: dict[str, list[int]] = {}
        forward = Forward()
        for request_id, new in output.num_scheduled_tokens.items():
            row = self._rows[request_id]
            if row.computed < row.to_prefill:
                forward.extend(row.computed, new, admitted=request_id in admitted)
                self.prefilled_tokens += new
                # The last token of an output was sampled before a preemption, and not computed.
                self.prefilled_tokens -= row.computed + new >= row.to_prefill > row.prompt
            else:
                forward.decode(row.computed + new)
            row.computed += new
            sampled[request_id] = []
            if row.computed >= row.known:
                sampled[request_id].append(row.draws.randrange(self._vocabulary))
                row.known += 1
        return sampled, forward

    def _admit(self, output: Any, now: float) -> set[str]:
        """Requests that leave the waiting queue with this step."""
        cached = output.scheduled_cached_reqs
        resumed = {
            request_id: (computed, outputs)
            for request_id, computed, outputs in zip(
                cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True
            )
            if request_id in cached.resumed_req_ids
        }
        admitted = {
            each.req_id: (each.num_computed_tokens, 0) for each in output.scheduled_new_reqs
        } | resumed
        for request_id, (computed, outputs) in admitted.items():
            row = self._rows[request_id]
            row.computed = computed
            row.known = row.to_prefill = row.prompt + outputs
            row.waited_s += now - row.queued_s
        return set(admitted)
