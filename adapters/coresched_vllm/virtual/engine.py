"""vLLM's scheduler, step by step, with outputs made up from each token's place in its trajectory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coresched_vllm.virtual.boot import Settings, make_config, make_pool_layout

STEPS_AHEAD = 2
"""Steps that are scheduled before the first one's outputs are known, with asynchronous scheduling."""


@dataclass(frozen=True)
class Finished:
    request_id: str
    tokens: list[int]
    """The prompt and what was generated."""
    prompt_tokens: int
    cached_tokens: int
    """Of the prompt, when it was first admitted."""
    reason: str


class VirtualEngine:
    """One engine. ``folder`` is for files that vLLM wants; see `Settings`."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.config = make_config(folder, settings)
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.structured_output import StructuredOutputManager

        layout = make_pool_layout(self.config, settings)
        self.scheduler: Any = self.config.scheduler_config.get_scheduler_cls()(
            vllm_config=self.config,
            kv_cache_config=layout,
            structured_output_manager=StructuredOutputManager(self.config),
            block_size=settings.block_size,
            hash_block_size=settings.block_size,
            log_stats=True,
        )
        hash_function = get_hash_fn_by_name("sha256")
        init_none_hash(hash_function)
        self._hasher = get_request_block_hasher(settings.block_size, hash_function)
        self._steps_ahead = STEPS_AHEAD if settings.async_scheduling else 1
        self._scheduled: deque[tuple[Any, dict[str, list[int]]]] = deque()
        self._requests: dict[str, Any] = {}
        self._cached_tokens: dict[str, int] = {}
        self.steps = 0
        """Calls of the scheduler, with those that scheduled nothing."""
        self.empty_steps = 0
        self.scheduled_tokens = 0
        self.preemptions = 0

    def submit(
        self,
        request_id: str,
        prompt: Sequence[int],
        output_tokens: int,
        *,
        session_id: Any = None,
        extra_args: dict[str, Any] | None = None,
    ) -> None:
        """A request of so many tokens; labels go where vLLM's front end puts them."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        sampling = SamplingParams(
            max_tokens=output_tokens, ignore_eos=True, temperature=0.0, extra_args=extra_args
        )
        request = Request(
            request_id, list(prompt), sampling, None, block_hasher=self._hasher, session_id=session_id
        )
        self._requests[request_id] = request
        self.scheduler.add_request(request)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Wherever they are."""
        from vllm.v1.request import RequestStatus

        ids = list(request_ids)
        self.scheduler.finish_requests(ids, RequestStatus.FINISHED_ABORTED)
        for request_id in ids:
            self._requests.pop(request_id, None)
            self._cached_tokens.pop(request_id, None)

    def waiting(self) -> list[str]:
        """The waiting queue, in order."""
        return [request.request_id for request in self.scheduler.waiting]

    def step(self) -> list[Finished]:
        """Schedule once; then take the outputs of the earliest step that no longer may be outstanding."""
        output = self.scheduler.schedule()
        self.steps += 1
        self.empty_steps += not output.total_num_scheduled_tokens
        self.scheduled_tokens += output.total_num_scheduled_tokens
        self.preemptions += len(output.preempted_req_ids or ())
        self._scheduled.append((output, self._outputs(output)))
        if len(self._scheduled) < self._steps_ahead and output.total_num_scheduled_tokens:
            return []
        return self._update(*self._scheduled.popleft())

    def _outputs(self, output: Any) -> dict[str, list[int]]:
        """A token for each request whose known tokens are all computed with this step."""
        outputs = {}
        for request_id in output.num_scheduled_tokens:
            request = self._requests[request_id]
            place = request.num_computed_tokens  # with this step's
            outputs[request_id] = [] if request.is_prefill_chunk else [3 + place * 31 % 500]
        return outputs

    def _update(self, output: Any, sampled: dict[str, list[int]]) -> list[Finished]:
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(sampled)
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=list(sampled.values()),
        )
        finished = []
        for outputs in self.scheduler.update_from_output(output, result).values():
            for each in outputs.outputs:
                if each.prefill_stats is not None:  # with a request's first output
                    self._cached_tokens[each.request_id] = each.prefill_stats.num_cached_tokens
                if each.finish_reason is not None:
                    finished.append(self._finished(each.request_id, str(each.finish_reason)))
        return finished

    def _finished(self, request_id: str, reason: str) -> Finished:
        request = self._requests.pop(request_id)
        return Finished(
            request_id=request_id,
            tokens=list(request.all_token_ids),
            prompt_tokens=request.num_prompt_tokens,
            cached_tokens=self._cached_tokens.pop(request_id),
            reason=reason,
        )
