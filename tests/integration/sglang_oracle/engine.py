"""What tests ask the engine: bytes of a state slot, and the pools it makes of flags and memory."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

from integration.sglang_oracle.launch import Launch, Settings
from integration.sglang_oracle.modules import EngineModules, load_modules, replaced_modules
from integration.sglang_oracle.source import compile_definitions
from integration.sglang_oracle.wheel import Wheel, find_wheel

from coresched.capacity.sglang import ENGINE_VERSION

GIB = 1 << 30
CONFIGURATOR = "sglang/srt/mem_cache/kv_cache_configurator.py"
POOL_CONFIGURATOR = "sglang/srt/model_executor/pool_configurator.py"
SKIP_VARIABLE = "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK"
SOLVE_NAMES = (
    "MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO",
    "MAMBA_CACHE_BASE_RATIO_DROP_ON_SKIP",
    "MAMBA_CACHE_V2_ADDITIONAL_RATIO_NO_BUFFER",
    "_pd_prefill_skips_mamba_spec_state",
    "mm_runtime_reservation_gb",
)
SOLVE_METHODS = (
    "_profile_available_bytes",
    "_handle_max_mamba_cache",
    "_calculate_mamba_ratio",
    "_apply_token_constraints",
    "config_from_budget",
    "resolve_max_num_reqs",
    "_resolve_memory_pool_config",
    "logical_token_capacity",
    "loc_space_scale",
)


class EngineRefuses(Exception):
    """The engine's code raised where it would not start."""


@dataclass(frozen=True)
class EnginePools:
    """The engine's numbers for one rank and its warnings about requests cut; a dense model has no slots."""

    state_slots: int | None
    slots_per_request: int
    kv_tokens: int
    max_running_requests: int
    warnings: tuple[str, ...]


class Engine:
    """The engine's own code from one release wheel."""

    def __init__(self, wheel: Wheel, modules: EngineModules) -> None:
        self.wheel = wheel
        self.launch = Launch(wheel)
        self._modules = modules
        self._settings: Settings
        self._memory_gib: float
        self._warnings: list[str] = []
        self._pools = compile_definitions(
            wheel.text(POOL_CONFIGURATOR),
            POOL_CONFIGURATOR,
            names=["MemoryPoolConfig", "MemoryPoolConfigurator"],
            methods={
                "DefaultPoolConfigurator": ["calculate_pool_sizes", "calculate_pool_sizes_from_max_tokens"]
            },
            surroundings={"dataclass": dataclasses.dataclass},
        )
        self._solve = compile_definitions(
            wheel.text(CONFIGURATOR),
            CONFIGURATOR,
            names=SOLVE_NAMES,
            methods={"KVCacheConfigurator": SOLVE_METHODS},
            surroundings=self._surroundings(),
        )

    def mamba2_shape(self, **dimensions: int) -> Any:
        """``Mamba2StateShape.create``: Mamba2, and GDN with its key heads as groups."""
        return self._modules.mamba_utils.Mamba2StateShape.create(**dimensions)

    def mamba1_shape(self, **dimensions: int) -> Any:
        """``Mamba2StateShape.create_full_rank``: Mamba1."""
        return self._modules.mamba_utils.Mamba2StateShape.create_full_rank(**dimensions)

    def kda_shape(self, **dimensions: int) -> Any:
        """``KimiLinearStateShape.create``: KDA."""
        return self._modules.mamba_utils.KimiLinearStateShape.create(**dimensions)

    def slot_bytes(self, shape: Any, layers: int, *, conv: str = "bfloat16", ssm: str = "float32") -> int:
        """``mamba_cache_per_req``: bytes of one slot over ``layers`` state layers, with these dtypes."""
        utils, torch = self._modules.mamba_utils, self._modules.torch
        dtype = utils.Mamba2StateDType(conv=getattr(torch, conv), temporal=getattr(torch, ssm))
        is_kda = isinstance(shape, utils.KimiLinearStateShape)
        parameters = utils.KimiLinearCacheParams if is_kda else utils.Mamba2CacheParams
        return int(parameters(shape=shape, dtype=dtype, layers=list(range(layers))).mamba_cache_per_req)

    def stage_layers(self, layers: int, stages: int) -> list[tuple[int, int]]:
        """``get_pp_indices``: first and end layer of each pipeline stage."""
        return [self._modules.distributed.get_pp_indices(layers, rank, stages) for rank in range(stages)]

    def solve(
        self,
        flags: Mapping[str, Any],
        memory_bytes: float,
        kv_bytes: int,
        state_bytes: int,
        *,
        layers: int = 1,
        state_layers: Iterable[int] = (0,),
    ) -> EnginePools:
        """The engine's pools. ``state_bytes`` is of all ``state_layers``; a pipeline stage takes its share.

        Raises EngineRefuses where the engine would not start.
        """
        self._warnings.clear()
        self._memory_gib = memory_bytes / GIB
        self._settings = self.launch.settings(flags)
        configurator = object.__new__(self._solve["KVCacheConfigurator"])
        state = SimpleNamespace(layers=list(state_layers), mamba_cache_per_req=state_bytes)
        vars(configurator).update(
            device="cpu",
            gpu_id=0,
            attn_dp_size=flags["attn_dp_size"],
            pp_size=flags["pp_size"],
            model_config=SimpleNamespace(
                num_hidden_layers=layers, context_len=flags["context_length"], is_multimodal=False
            ),
            mambaish_config=SimpleNamespace(mamba2_cache_params=state) if state_bytes else None,
            hybrid_gdn_config=None,
            hybrid_kda_config=None,
            extra_mamba_cache_bytes_per_req=0,
            spec_algorithm=SimpleNamespace(is_none=lambda: flags["speculative_num_draft_tokens"] is None),
            is_draft_worker=False,
            is_hybrid_swa=False,
            post_capture_kv_active=False,
            fused_entry_bytes=lambda _: None,  # no unified memory pool
        )
        with self._surrounded(kv_bytes, flags["skip_decode_lock"]):
            try:
                if state_bytes:
                    self.launch.check_strategy(self._settings)
                config = configurator._resolve_memory_pool_config(self._memory_gib)
                return EnginePools(
                    state_slots=self._settings.schedule.max_mamba_cache_size if state_bytes else None,
                    slots_per_request=configurator._calculate_mamba_ratio(),
                    kv_tokens=configurator.logical_token_capacity(
                        max_total_num_tokens=config.max_total_num_tokens
                    ),
                    max_running_requests=config.max_running_requests,
                    warnings=tuple(self._warnings),
                )
            except (RuntimeError, ValueError, AssertionError) as error:
                raise EngineRefuses(str(error)) from error

    @contextmanager
    def _surrounded(self, kv_bytes: int, skip_decode_lock: bool) -> Iterator[None]:
        """The module that the solve imports as it runs, and the environment variable that it reads."""
        sizer = object.__new__(self._pools["DefaultPoolConfigurator"])
        vars(sizer).update(_cell_size=kv_bytes, _fixed_overhead_bytes=0)
        module = ModuleType("sglang.srt.model_executor.pool_configurator")
        vars(module)["create_memory_pool_configurator"] = lambda _: sizer
        before = os.environ.get(SKIP_VARIABLE)
        os.environ[SKIP_VARIABLE] = "1" if skip_decode_lock else "0"
        try:
            with replaced_modules({module.__name__: module}):
                yield
        finally:
            del os.environ[SKIP_VARIABLE]
            if before is not None:
                os.environ[SKIP_VARIABLE] = before

    def _surroundings(self) -> dict[str, Any]:
        """What the solve finds around it: the engine's own leaf functions, the settings and the memory."""
        log = SimpleNamespace(warning=self._warn)
        override = SimpleNamespace(override=lambda _, **values: vars(self._settings.schedule).update(values))
        return {
            "math": math,
            "logging": log,
            "logger": log,
            "gc": SimpleNamespace(collect=lambda: None),
            "envs": self._modules.environ.envs,
            "get_pp_indices": self._modules.distributed.get_pp_indices,
            "get_mamba_tracking_slots": self._modules.allocation_sizing.get_mamba_tracking_slots,
            "get_available_gpu_memory": lambda *_, **__: self._memory_gib,
            "Backend": SimpleNamespace(FULL="full"),
            "get_schedule": lambda: self._settings.schedule,
            "get_memory": lambda: self._settings.memory,
            "get_exec": lambda: self._settings.exec_,
            "get_spec": lambda: self._settings.spec,
            "get_parallel": lambda: self._settings.parallel,
            "get_disagg": lambda: self._settings.disagg,
            "get_mm": lambda: self._settings.mm,
            "get_context": lambda: override,
            "_is_npu": False,
        }

    def _warn(self, message: str, *values: object) -> None:
        self._warnings.append(message % values if values else message)

    def constant(self, name: str) -> Any:
        """A module constant of the solve, such as MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO."""
        return self._solve[name]

    def source(self) -> str:
        """The text of the file that the solve is in."""
        return self.wheel.text(CONFIGURATOR)


@functools.cache
def load_engine() -> Engine:
    """The engine of the release that the product is written for, loaded once a test session.

    Raises WheelUnavailable when it cannot be fetched, WrongEngine when another release is in its place.
    """
    wheel = find_wheel(ENGINE_VERSION)
    return Engine(wheel, load_modules(wheel))
