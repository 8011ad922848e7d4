"""Leaf modules of the engine, loaded unedited from the wheel beside stand-ins for torch and the context."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

from integration.sglang_oracle.wheel import Wheel

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
}
PACKAGES = ("sglang", "sglang.srt", "sglang.srt.configs", "sglang.srt.distributed", "sglang.srt.mem_cache")
CONTEXT = ("get_parallel", "get_schedule", "get_spec", "get_resources", "max_speculative_num_draft_tokens")


@dataclass(frozen=True)
class StandInDtype:
    """As much of a torch dtype as sizing reads."""

    name: str
    itemsize: int


def _module(name: str, **names: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(names)
    return module


def _torch() -> dict[str, ModuleType]:
    distributed = _module(
        "torch.distributed", TCPStore=object, all_gather_single=None, reduce_scatter_single=None
    )
    dtypes = {name: StandInDtype(name, size) for name, size in DTYPE_BYTES.items()}
    torch = _module(
        "torch",
        distributed=distributed,
        dtype=StandInDtype,
        Tensor=object,
        _C=SimpleNamespace(_distributed_c10d=SimpleNamespace(Store=object)),
        version=SimpleNamespace(hip=None),
        **dtypes,
    )
    return {"torch": torch, "torch.distributed": distributed}


@contextmanager
def replaced_modules(modules: dict[str, ModuleType]) -> Iterator[None]:
    """Import under these modules only; an installed torch or sglang is neither seen nor disturbed."""
    hidden = {n: m for n, m in sys.modules.items() if n.partition(".")[0] in ("torch", "sglang")}
    for name in hidden:
        del sys.modules[name]
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in [n for n in sys.modules if n.partition(".")[0] in ("torch", "sglang")]:
            del sys.modules[name]
        sys.modules.update(hidden)


@dataclass(frozen=True)
class EngineModules:
    """The loaded modules: state shapes, environment variables, layer partition, tracking slots."""

    mamba_utils: Any
    environ: Any
    distributed: Any
    allocation_sizing: Any
    torch: Any


def load_modules(wheel: Wheel) -> EngineModules:
    stand_ins = _torch()
    for name in PACKAGES:
        stand_ins[name] = _module(name, __path__=[f"{wheel.path}/{name.replace('.', '/')}"])
    context = dict.fromkeys(CONTEXT)
    stand_ins["sglang.srt.runtime_context"] = _module("sglang.srt.runtime_context", **context)
    names = ("configs.mamba_utils", "environ", "distributed.utils", "mem_cache.allocation_sizing")
    for name in names:
        wheel.text(f"sglang/srt/{name.replace('.', '/')}.py")  # compared with the record before it runs
    with replaced_modules(stand_ins):
        loaded = [importlib.import_module(f"sglang.srt.{name}") for name in names]
    mamba_utils, environ, distributed, allocation_sizing = loaded
    return EngineModules(mamba_utils, environ, distributed, allocation_sizing, stand_ins["torch"])
