"""The device's memory: a ledger of it, and pools that have their real sizes but no bytes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from coresched_simdevice.configuration import device

GIB: Final = 1 << 30

SMALLEST_BYTELESS: Final = 1 << 20
"""Bytes; tensors below it are allocated."""


@dataclass
class Ledger:
    """What one rank's device holds, in bytes."""

    total: int
    weights: int = 0
    pools: int = 0

    @property
    def free(self) -> int:
        return self.total - self.weights - self.pools


@cache
def ledger() -> Ledger:
    """This process's ledger."""
    return Ledger(device().memory_bytes)


def available_gib(
    device: str, gpu_id: int, distributed: bool = False, empty_cache: bool = True, cpu_group: object = None
) -> float:
    """In place of ``get_available_gpu_memory``. Every rank's device is alike, so the least of them is any."""
    return ledger().free / GIB


def init_pools(original: Callable[..., Any], configurator: Any, **sizes: Any) -> Any:
    """Around ``KVCacheConfigurator._init_pools``: builds the pools without their bytes and books them."""
    with byteless_tensors():
        pools = original(configurator, **sizes)
    ledger().pools += round(_pool_gib(pools) * GIB)
    return pools


def _pool_gib(pools: Any) -> float:
    """What the pools say that they take."""
    states = getattr(pools.req_to_token_pool, "mamba_pool", None)
    taken = pools.token_to_kv_pool.mem_usage + (states.mem_usage if states is not None else 0)
    return float(taken)


@contextmanager
def byteless_tensors() -> Iterator[None]:
    """Within it, ``torch.zeros`` and ``torch.empty`` give large tensors of numbers without memory.

    Such a tensor has its shape, type and size, but all its elements are one. Writing a slice of it raises an
    error, so that a forward that is not simulated cannot go unnoticed. Indices (integers of 16 bits and more,
    and truth values), which the scheduler's tables and lists are made of, are stored, in pages that the
    kernel provides when they are first written.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    stored = (torch.bool, torch.int16, torch.int32, torch.int64)

    class Byteless(TorchFunctionMode):  # type: ignore[misc]  # untyped without torch
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            kwargs = kwargs or {}
            if function not in (torch.zeros, torch.empty) or kwargs.get("out") is not None:
                return function(*args, **kwargs)
            shape = function(*args, **{**kwargs, "device": "meta", "pin_memory": False})
            if shape.nbytes < SMALLEST_BYTELESS:
                return function(*args, **kwargs)
            if shape.dtype not in stored:
                return torch.zeros(1, dtype=shape.dtype).expand(shape.shape)
            if function is torch.empty:
                return function(*args, **kwargs)
            return _lazy_zeros(shape)

    with Byteless():
        yield


def _lazy_zeros(like: Any) -> Any:
    """Zeros like ``like``, from numpy, which leaves it to the kernel to clear pages; torch does not."""
    import numpy
    import torch

    name = str(like.dtype).removeprefix("torch.")
    return torch.from_numpy(numpy.zeros(tuple(like.shape), dtype=name))
