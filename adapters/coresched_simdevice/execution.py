"""In place of the forward pass: a duration on the device's timeline, and tokens."""

import logging
from typing import Any

from coresched_simdevice import timeline
from coresched_simdevice.configuration import device
from coresched_simdevice.forward import step_seconds
from coresched_simdevice.replies import Replies

logger = logging.getLogger(__name__)


def after_worker_init(result: None, worker: Any, *args: Any, **kwargs: Any) -> None:
    """After ``TpModelWorker.__init__``, which loads the tokenizer."""
    config = worker.model_config
    replies = Replies.for_vocabulary(worker.tokenizer, config.vocab_size, config.hf_eos_token_id or ())
    if worker.tokenizer is not None and not replies.exact:
        logger.warning(
            "coresched_simdevice: with this tokenizer the text of a reply is other tokens than the reply: a "
            "chat that sends it back reuses the cache up to the reply only; send token ids"
        )
    worker.simulated_replies = replies


def forward_batch_generation(worker: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    """In place of ``TpModelWorker.forward_batch_generation``: queues the forward and returns at once."""
    import torch
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput
    from sglang.srt.managers.utils import GenerationBatchResult

    timeline.current().launch(step_seconds(batch, device().times) / device().speed)
    return GenerationBatchResult(
        logits_output=LogitsProcessorOutput(next_token_logits=None),
        next_token_ids=torch.tensor(_next_tokens(worker, batch), dtype=torch.int64),
        # As on a GPU, on which the step times were measured.
        can_run_cuda_graph=batch.forward_mode.is_decode(),
    )


def _next_tokens(worker: Any, batch: Any) -> list[int]:
    if batch.forward_mode.is_idle():
        return []
    runner = worker.model_runner
    longest = min(worker.model_config.context_len, runner.effective_logical_max_total_num_tokens) - 1
    tokens = []
    for request, length in zip(batch.reqs, batch.seq_lens_cpu.tolist(), strict=True):
        prompt = request.origin_input_ids
        parameters = request.sampling_params
        # Without a limit of its own a request has what SGLang cut it to: the rest of the context.
        open_ended = not parameters.ignore_eos and len(prompt) + parameters.max_new_tokens + 1 >= longest
        token = worker.simulated_replies.token(
            request.rid, length - len(prompt), prompt[-1], open_ended=open_ended
        )
        tokens.append(token)
    return tokens


def after_run_batch(result: Any, scheduler: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    """After ``Scheduler.run_batch``: the result can be read when the device gets there."""
    if hasattr(result, "next_token_ids"):
        device_timeline = timeline.current()
        result.copy_done = timeline.StepEvent(device_timeline.free_at, device_timeline.clock)
    return result


def unpinned(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """In place of ``Tensor.pin_memory``, which needs a GPU."""
    return tensor
