"""One of SGLang's engines, and what it made of its flags and the device's memory."""

from typing import Any

from coresched_engine.fleet.wire import Ready

from coresched.capacity.sglang import SglangFlags, slots_per_request
from coresched_simdevice.memory import GIB
from coresched_simdevice.virtual.engine import VirtualEngine

UNCHUNKED = 1 << 40
"""For a chunk of prefill where prompts are not cut."""


def make_engine(server_args: dict[str, Any]) -> tuple[VirtualEngine, Ready]:
    """Boot the one engine of this process. Raises InputError where SGLang refuses its arguments."""
    engine = VirtualEngine(server_args)
    return engine, ready(engine)


def ready(engine: VirtualEngine) -> Ready:
    from sglang.srt.runtime_context import get_context

    scheduler = engine.scheduler
    runner = scheduler.tp_worker.model_runner
    resolved = get_context().resolved_server_args_dict()
    states = getattr(runner.req_to_token_pool, "mamba_pool", None)
    kv = runner.token_to_kv_pool
    slots, slot_tokens = 1, 0.0
    if states is not None:
        token_bytes = kv.mem_usage * GIB / (scheduler.max_total_num_tokens + scheduler.page_size)
        # One slot more than there are, as padding.
        slot_tokens = float(states.mem_usage) * GIB / (states.size + 1) / float(token_bytes)
        names = ("mamba_radix_cache_strategy", "disable_overlap_schedule", "disable_radix_cache", "page_size")
        slots = slots_per_request(SglangFlags(**{name: resolved[name] for name in names}))
    return Ready(
        vocabulary=engine.vocabulary_size,
        longest_prompt=scheduler.max_req_input_len - 1,
        longest_request=scheduler.max_req_len - 1,
        kv_tokens=scheduler.max_total_num_tokens,
        state_slots=None if states is None else int(states.size),
        state_slot_tokens=slot_tokens,
        slots_per_request=slots,
        shared_pool=False,
        max_running_requests=scheduler.max_running_requests,
        page_size=scheduler.page_size,
        prefill_chunk_tokens=scheduler.chunked_prefill_size or UNCHUNKED,
        overlap=bool(scheduler.enable_overlap),
    )
