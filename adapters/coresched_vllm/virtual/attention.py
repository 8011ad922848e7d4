"""Attention that vLLM's layers name and never call. Only vLLM can load this module."""

from __future__ import annotations

from typing import Any

from vllm.v1.attention.backend import AttentionBackend, MultipleOf

KERNEL_BLOCK_TOKENS = 16
"""Kernels take blocks of any multiple of it, as FlashAttention's do."""


class NoKernel:
    """An implementation without one. A layer asks it for properties, and none has to hold."""

    supports_quant_query_input = is_sparse = uses_amx_bmm = supports_dense_mha_prefill = False
    q_pad_num_heads = index_group = None
    dcp_world_size = pcp_world_size = 1

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class SimulatedAttention(AttentionBackend):  # type: ignore[misc]
    accept_output_buffer = True

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"  # vLLM's name for one that it does not have

    @staticmethod
    def get_impl_cls() -> Any:
        return NoKernel

    @staticmethod
    def get_builder_cls() -> Any:
        raise NotImplementedError("attention is not computed on the simulated device")

    @staticmethod
    def get_kv_cache_shape(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("no KV cache is allocated on the simulated device")

    @classmethod
    def get_supported_kernel_block_sizes(cls) -> list[Any]:
        return [MultipleOf(KERNEL_BLOCK_TOKENS)]
