"""Messages to SGLang's scheduler, as its tokenizer process sends them."""

from array import array
from typing import Any


def generate_request(request_id: str, prompt: "array[int]", output_tokens: int, label: str | None) -> Any:
    """A request for exactly ``output_tokens`` tokens, in one answer."""
    from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
    from sglang.srt.observability.req_time_stats import APIServerReqTimeStats
    from sglang.srt.sampling.sampling_params import SamplingParams

    sampling = SamplingParams(max_new_tokens=output_tokens, ignore_eos=True)
    sampling.normalize(None)
    stamps = APIServerReqTimeStats()
    # Copied to the scheduler's stamps, which then come back with the output, as with --enable-metrics.
    stamps.has_timing_data = True
    return TokenizedGenerateReqInput(
        rid=request_id,
        input_text=None,
        input_ids=prompt,
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=sampling,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=False,
        routing_key=label,
        time_stats=stamps,
    )
