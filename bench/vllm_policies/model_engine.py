"""vLLM whole, with a tiny model on the CPU, stepped as `VirtualEngine` is. vLLM's Python runs this."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coresched_vllm.virtual.engine import Finished

from bench.vllm_policies.tiny_models import dtype_of, write_tiny_model


@dataclass(frozen=True)
class ModelSettings:
    """Of one engine, by vLLM's own names; ``model`` is one of `TINY_MODELS`, ``blocks`` the pool's size.

    ``block_size`` is what is asked for; vLLM takes larger ones where a recurrent state needs them.
    """

    model: str
    blocks: int
    block_size: int = 32
    max_num_seqs: int = 2
    max_num_batched_tokens: int = 512
    max_model_len: int = 1_024
    enable_prefix_caching: bool = True
    scheduler_cls: str | None = None
    additional_config: Mapping[str, Any] = field(default_factory=dict)


class ModelEngine:
    """One engine, in this process. ``folder`` is for the model. One a process: vLLM keeps global state."""

    def __init__(self, folder: Path, settings: ModelSettings) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        arguments = EngineArgs(
            model=str(write_tiny_model(settings.model, folder)),
            dtype=dtype_of(settings.model),
            skip_tokenizer_init=True,
            enforce_eager=True,
            block_size=settings.block_size,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            num_gpu_blocks_override=settings.blocks,
            kv_cache_memory_bytes=1 << 30,  # checked first; the override decides
            enable_prefix_caching=settings.enable_prefix_caching,
            scheduler_cls=settings.scheduler_cls,
            additional_config=dict(settings.additional_config),
        )
        self.engine: Any = LLMEngine.from_engine_args(arguments)
        self.scheduler: Any = self.engine.engine_core.engine_core.scheduler
        self.steps = self.empty_steps = self.scheduled_tokens = self.preemptions = 0
        schedule = self.scheduler.schedule

        def counted(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            self.scheduled_tokens += output.total_num_scheduled_tokens
            self.preemptions += len(output.preempted_req_ids or ())
            return output

        self.scheduler.schedule = counted

    def submit(
        self,
        request_id: str,
        prompt: Sequence[int],
        output_tokens: int,
        *,
        session_id: str | None = None,
    ) -> None:
        """A request of so many greedy tokens."""
        from vllm import SamplingParams

        sampling = SamplingParams(
            max_tokens=output_tokens, temperature=0.0, ignore_eos=True, detokenize=False
        )
        tokens: Any = {"prompt_token_ids": list(prompt)}
        self.engine.add_request(request_id, tokens, sampling, session_id=session_id)

    def step(self) -> list[Finished]:
        """One step of the engine; what ended with it."""
        self.steps += 1
        scheduled = self.scheduled_tokens
        outputs = self.engine.step()
        self.empty_steps += self.scheduled_tokens == scheduled
        return [
            Finished(
                request_id=output.request_id,
                tokens=[*output.prompt_token_ids, *output.outputs[0].token_ids],
                prompt_tokens=len(output.prompt_token_ids),
                cached_tokens=output.num_cached_tokens,
                reason=str(output.outputs[0].finish_reason),
            )
            for output in outputs
            if output.finished
        ]

    def forget(self) -> None:
        """Empty the prefix cache, while nothing is in flight. Raises RuntimeError where vLLM does not."""
        if not self.engine.reset_prefix_cache():
            raise RuntimeError("vLLM has not emptied its prefix cache")

    def abort_all(self) -> None:
        """Whatever is in flight."""
        scheduler = self.scheduler
        self.engine.abort_request(
            [each.request_id for each in (*scheduler.running, *scheduler.waiting)], internal=True
        )
        self.engine.step()
