"""One virtual engine, which does what the messages on its socket say."""

import os
import traceback
from array import array

from coresched.capacity.sglang import SglangFlags, slots_per_request
from coresched.errors import InputError
from coresched_simdevice.fleet.wire import (
    Advance,
    Advanced,
    Boot,
    Channel,
    Close,
    Counts,
    Ended,
    Failed,
    Ready,
    Refused,
    Submit,
)
from coresched_simdevice.memory import GIB
from coresched_simdevice.virtual.engine import VirtualEngine
from coresched_simdevice.virtual.finished import Finished

UNCHUNKED = 1 << 40
"""For a chunk of prefill where prompts are not cut."""


def serve_engine(channel: Channel, boot: Boot) -> int:
    """Boot and serve until the other side closes, or is gone. Returns the process's exit code.

    Errors are told on the channel, with a traceback on standard error where they are not the user's.
    """
    os.environ.update(boot.environment)
    try:
        engine = VirtualEngine(boot.server_args)
        channel.send(ready(engine))
        while (message := channel.receive()) is not None:
            if isinstance(message, Submit):
                prompt = array("q", message.prompt)
                engine.submit(message.request_id, prompt, message.output_tokens, message.label, message.at)
            elif isinstance(message, Advance):
                ended = [_ended(each) for each in engine.advance(message.until)]
                channel.send(Advanced(engine.next_event_s, ended))
            elif isinstance(message, Close):
                channel.send(Counts(engine.busy_s, engine.prefilled_tokens))
                engine.close()
                return 0
    except InputError as error:
        channel.send(Refused(str(error)))
        return 2
    except Exception as error:
        traceback.print_exc()
        channel.send(Failed(f"{type(error).__name__}: {error}"))
        return 1
    return 0


def _ended(finished: Finished) -> Ended:
    return Ended(
        request_id=finished.request_id,
        first_token_s=finished.first_token_s,
        finished_s=finished.finished_s,
        cached_tokens=finished.cached_tokens,
        queue_s=finished.queue_s,
        retractions=finished.retractions,
        output=finished.output_ids.tobytes(),
        aborted=finished.aborted,
    )


def ready(engine: VirtualEngine) -> Ready:
    """What SGLang made of its flags and the device's memory."""
    from sglang.srt.runtime_context import get_context

    scheduler = engine.scheduler
    runner = scheduler.tp_worker.model_runner
    resolved = get_context().resolved_server_args_dict()
    states = getattr(runner.req_to_token_pool, "mamba_pool", None)
    kv = runner.token_to_kv_pool
    slots = 1
    if states is not None:
        names = ("mamba_radix_cache_strategy", "disable_overlap_schedule", "disable_radix_cache", "page_size")
        slots = slots_per_request(SglangFlags(**{name: resolved[name] for name in names}))
    return Ready(
        vocabulary=engine.vocabulary_size,
        longest_prompt=scheduler.max_req_input_len - 1,
        longest_request=scheduler.max_req_len - 1,
        kv_tokens=scheduler.max_total_num_tokens,
        kv_token_bytes=float(kv.mem_usage) * GIB / (scheduler.max_total_num_tokens + scheduler.page_size),
        state_slots=None if states is None else int(states.size),
        # One slot more than there are, as padding.
        state_slot_bytes=0.0 if states is None else float(states.mem_usage) * GIB / (states.size + 1),
        slots_per_request=slots,
        max_running_requests=scheduler.max_running_requests,
        page_size=scheduler.page_size,
        prefill_chunk_tokens=scheduler.chunked_prefill_size or UNCHUNKED,
        overlap=bool(scheduler.enable_overlap),
    )
