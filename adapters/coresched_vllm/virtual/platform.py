"""A device of which vLLM knows the memory, in place of this machine's. Only vLLM can load this module."""

from __future__ import annotations

from typing import Any, ClassVar

from vllm import platforms
from vllm.platforms.interface import Platform, PlatformEnum


class SimulatedPlatform(Platform):  # type: ignore[misc]
    """Of another kind than CUDA and than the CPU, so nothing asks for kernels, and no limit of a CPU holds.

    Tensors of the model have no bytes, and the few others are on the CPU.
    """

    _enum = PlatformEnum.OOT
    device_name = device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = "gloo"
    memory_bytes: ClassVar[int] = 0

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "simulated device"

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return cls.memory_bytes

    @classmethod
    def get_attn_backend_cls(cls, *_: Any, **__: Any) -> str:
        return "coresched_vllm.virtual.attention.SimulatedAttention"

    @classmethod
    def get_mla_prefill_backend_cls(cls, *_: Any, **__: Any) -> Any:
        from vllm.v1.attention.backends.mla.prefill.registry import MLAPrefillBackendEnum

        return MLAPrefillBackendEnum.CPU.get_class()

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Nothing is adapted, as on CUDA, but for the worker, which the executor is itself."""
        vllm_config.parallel_config.worker_cls = f"{__name__}.{cls.__name__}"

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return True  # as on CUDA: layers of several kinds, with groups of their own


def install_platform(memory_bytes: int) -> None:
    """Make it this process's, with devices of so much memory, before anything of vLLM asks for a platform."""
    SimulatedPlatform.memory_bytes = memory_bytes
    platforms._current_platform = SimulatedPlatform()
