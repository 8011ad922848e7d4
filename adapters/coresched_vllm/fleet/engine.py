"""One of vLLM's engines, and what it made of its flags and the device's memory. vLLM is imported here."""

from __future__ import annotations

from typing import Any

from coresched_engine.fleet.wire import Ready
from vllm.v1.kv_cache_interface import MambaSpec

from coresched.errors import InputError
from coresched_vllm.fleet.arguments import make_config, refusals
from coresched_vllm.virtual.timed import TimedEngine


def boot_engine(arguments: dict[str, Any]) -> tuple[TimedEngine, Ready]:
    """The one engine of this process, of these fields of EngineArgs. Raises InputError where vLLM refuses."""
    config = make_config(arguments)
    with refusals():
        engine = TimedEngine(config)
    return engine, ready(engine)


def ready(engine: TimedEngine) -> Ready:
    """Its one block pool, in tokens and in states: what vLLM's own code made of the model's layers.

    With blocks of B tokens, A groups of attention layers and S of recurrent ones, a token takes A / B of a
    block, and a state S blocks. Raises InputError for a model without attention, of which vLLM caches
    nothing.
    """
    config, layout = engine.core.vllm_config, engine.core.scheduler.kv_cache_config
    specs = [group.kv_cache_spec for group in layout.kv_cache_groups]
    states = [spec for spec in specs if isinstance(spec, MambaSpec)]
    attention = [spec for spec in specs if not isinstance(spec, MambaSpec)]
    if not attention:
        raise InputError("this model has no attention layers, so vLLM has no prefix cache for it")
    usable = layout.num_blocks - 1  # vLLM never hands out the first
    block_tokens = max(spec.block_size for spec in attention)
    running = 1
    if states:
        running = states[0].max_memory_usage_bytes(config) // states[0].page_size_bytes
    return Ready(
        vocabulary=config.model_config.get_vocab_size(),
        longest_prompt=config.model_config.max_model_len - 1,
        longest_request=config.model_config.max_model_len,
        kv_tokens=usable * block_tokens // len(attention),
        state_slots=usable // len(states) if states else None,
        state_slot_tokens=len(states) * block_tokens / len(attention),
        slots_per_request=running,
        shared_pool=bool(states),
        max_running_requests=config.scheduler_config.max_num_seqs,
        page_size=block_tokens,
        prefill_chunk_tokens=config.scheduler_config.max_num_batched_tokens,
        overlap=bool(config.scheduler_config.async_scheduling),
    )
