"""What vLLM's scheduler is made from, without a model: a configuration and the layout of a block pool."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""For a process that makes such a configuration; set before vLLM is imported. Nothing is fetched or sent."""

_MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 131_072,
    "torch_dtype": "float32",
}


@dataclass(frozen=True)
class Settings:
    """Of one scheduler.

    ``blocks`` is the size of the block pool, of which vLLM keeps one; a block is ``block_size`` tokens of the
    attention layers' group, or one recurrent state of one of ``state_groups`` groups (0: a dense model).
    ``scheduler_cls`` and the rest are vLLM's own, by its names; None for its default scheduler.
    """

    blocks: int
    block_size: int = 32
    state_groups: int = 3
    max_num_seqs: int = 4
    max_num_batched_tokens: int = 512
    max_model_len: int = 65_536
    async_scheduling: bool = False
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"
    scheduler_cls: Any = None
    additional_config: Mapping[str, Any] = field(default_factory=dict)


def make_config(folder: Path, settings: Settings) -> Any:
    """A VllmConfig, as vLLM's front end makes one; ``folder`` is for the model's config.json.

    Raises what vLLM, or the adapter's plugin, raises for a configuration that it refuses.
    """
    os.environ.update(ENVIRONMENT)
    from vllm.engine.arg_utils import EngineArgs

    (folder / "config.json").write_text(json.dumps(_MODEL))
    config = EngineArgs(
        model=str(folder),
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        enable_prefix_caching=settings.enable_prefix_caching,
        scheduling_policy=settings.scheduling_policy,
        scheduler_cls=settings.scheduler_cls,
        additional_config=dict(settings.additional_config),
    ).create_engine_config()
    # The CPU platform switches it off, whatever is asked for.
    config.scheduler_config.async_scheduling = settings.async_scheduling
    cache = config.cache_config
    cache.num_gpu_blocks, cache.block_size = settings.blocks, settings.block_size
    if settings.state_groups:
        cache.mamba_block_size = settings.block_size
        cache.mamba_cache_mode = "align" if settings.enable_prefix_caching else "none"
    return config


def make_pool_layout(config: Any, settings: Settings) -> Any:
    """A KVCacheConfig: one group of attention layers, and ``state_groups`` of recurrent ones."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec

    torch_dtype = config.model_config.dtype
    attention = FullAttentionSpec(
        block_size=settings.block_size, num_kv_heads=1, head_size=32, dtype=torch_dtype
    )
    groups = [KVCacheGroupSpec(["attention"], attention)]
    for number in range(settings.state_groups):
        recurrent = MambaSpec(
            block_size=settings.block_size,
            shapes=((4, 8),),
            dtypes=(torch_dtype,),
            page_size_padded=attention.page_size_bytes,
            mamba_cache_mode=config.cache_config.mamba_cache_mode,
        )
        groups.append(KVCacheGroupSpec([f"recurrent.{number}"], recurrent))
    layout = KVCacheConfig(num_blocks=settings.blocks, kv_cache_tensors=[], kv_cache_groups=groups)
    if hasattr(layout, "prefix_cache_retention_interval"):
        layout.prefix_cache_retention_interval = 0  # what engines have by default; the class has None
    return layout
