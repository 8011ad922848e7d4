"""SGLang's own radix tree, filled with the trajectories that a worker holds: no model, no device.

The tree keeps token ids, slots and their order of use; the memory that the slots stand for is not needed. Its
two components are attention and recurrent state, as a hybrid model has them. Written for SGLang 0.5.23.
"""

import json
from array import array
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateShape
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import InsertParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.runtime_context import SpawnRanks, publish
from sglang.srt.server_args import ServerArgs

CONTEXT = 131_072
SYSTEM_PROMPT = 2_048
TURN = 3_000  # tokens that a turn adds to its trajectory
STATE_GRID = 64  # SGLang keeps recurrent states at multiples of this many tokens
SPARE_STATES = 64  # slots of a trajectory that grows, beside one for each that is resident

# Only so that SGLang has a configuration to publish; its policies and its tree read flags, not the model.
_MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 65_536,
    "max_position_embeddings": CONTEXT,
    "torch_dtype": "bfloat16",
}


def publish_flags() -> None:
    """Make SGLang's flags known to this process, as its scheduler does: defaults, one state a trajectory."""
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(_MODEL))
        flags = ServerArgs(
            model_path=folder,
            device="cpu",
            load_format="dummy",
            attention_backend="torch_native",
            sampling_backend="pytorch",
            context_length=CONTEXT,
            skip_tokenizer_init=True,
            mamba_max_states_per_path=1,
        )
        flags.resolve_once()
        publish(flags, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0))


def random_tokens(rng: Random, count: int) -> "array[int]":
    return array("q", array("H", rng.randbytes(2 * count)))


class ResidentTree:
    """A radix tree that holds trajectories, each grown turn by turn over one system prompt."""

    def __init__(self, contexts: "list[array[int]]") -> None:
        tokens = SYSTEM_PROMPT + sum(len(context) - SYSTEM_PROMPT for context in contexts)
        self._states = _state_pool(len(contexts) + SPARE_STATES)
        self._slots = TokenToKVPoolAllocator(
            size=tokens,
            dtype=torch.bfloat16,
            device="cpu",
            kvcache=SimpleNamespace(get_kv_size_bytes=lambda: 0, mem_usage=0),
            need_sort=False,
        )
        self.cache: Any = UnifiedRadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=self._states,
                token_to_kv_pool_allocator=self._slots,
                page_size=1,
                tree_components=(ComponentType.FULL, ComponentType.MAMBA),
                enable_mamba_extra_buffer=True,
            )
        )
        self.tokens = tokens
        system = self._slots.alloc(SYSTEM_PROMPT)
        for context in contexts:
            self._grow(context, torch.cat([system, self._slots.alloc(len(context) - SYSTEM_PROMPT)]))

    def _grow(self, context: "array[int]", slots: Any) -> None:
        done = 0
        for end in [*range(SYSTEM_PROMPT + TURN, len(context), TURN), len(context)]:
            end = end // STATE_GRID * STATE_GRID
            if end <= done:
                continue
            state = self._states.mamba_allocator.alloc(1)
            inserted = self.cache.insert(
                InsertParams(
                    key=RadixKey(context[:end]),
                    value=slots[:end].clone(),
                    mamba_value=state,
                    prev_prefix_len=done,
                )
            )
            if inserted.mamba_exist:
                self._states.mamba_allocator.free(state)
            done = end


def _state_pool(states: int) -> Any:
    """Slots for that many recurrent states, of one tiny layer."""
    shape = Mamba2StateShape.create(
        tp_world_size=1,
        intermediate_size=64,
        n_groups=1,
        num_heads=1,
        head_dim=64,
        state_size=16,
        conv_kernel=4,
    )
    return HybridReqToTokenPool(
        size=8,
        mamba_size=states,
        mamba_spec_state_size=8,
        max_context_len=CONTEXT,
        device="cpu",
        enable_memory_saver=False,
        cache_params=Mamba2CacheParams(shape=shape, layers=[0]),
        mamba_layer_ids=[0],
        enable_mamba_extra_buffer=True,
    )
