"""vLLM's executor on a simulated device: caches of the model's real sizes, steps that take virtual time.

Only vLLM can load this module.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import Any

import torch
from coresched_engine.virtual.device import SimulatedDevice, read_device
from coresched_engine.virtual.timeline import Clock, DeviceTimeline
from vllm.config.vllm import get_layers_from_vllm_config
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.executor.abstract import Executor
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes

from coresched.capacity.sizes import size_text
from coresched.errors import InputError
from coresched_vllm.virtual.process_group import join_alone
from coresched_vllm.virtual.rows import Rows


class SimulatedClock:
    """Virtual seconds from 0. It moves to the end of a step when somebody waits for the step's result."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def wait_until(self, t: float) -> None:
        self._now = max(self._now, t)


class StepResult(Future):  # type: ignore[type-arg]
    """What a step puts out, which is there when virtual time has come to the step's ``end``."""

    def __init__(self, value: Any, end: float, clock: Clock) -> None:
        super().__init__()
        self.set_result(value)
        self._end = end
        self._clock = clock

    def done(self) -> bool:
        return self._clock.now() >= self._end

    def result(self, timeout: float | None = None) -> Any:
        self._clock.wait_until(self._end)
        return super().result()


class SimulatedExecutor(Executor):  # type: ignore[misc]
    """Rank 0 of a model without weights."""

    uses_ray = False
    supports_pp = True  # or vLLM says that another executor would do

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return True

    def _init_executor(self) -> None:
        self.device: SimulatedDevice = read_device(os.environ)
        self.clock = SimulatedClock()
        self.timeline = DeviceTimeline(self.clock)
        self.rows = Rows(self.model_config.get_vocab_size())
        self._sampled: StepResult | None = None
        join_alone(self.vllm_config)
        with torch.device("meta"), set_default_torch_dtype(self.model_config.dtype):
            self._model = initialize_model(self.vllm_config)
        current_platform.update_block_size_for_backend(self.vllm_config)

    def collective_rpc(
        self,
        method: Any,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
    ) -> Any:
        return [_Worker(self).call(method, args, kwargs or {})]

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Begin a step when those before have ended; tokens are sampled with `sample_tokens`."""
        now = self.clock.now()
        sampled, forward = self.rows.step(scheduler_output, now)
        if not scheduler_output.total_num_scheduled_tokens:
            return StepResult(EMPTY_MODEL_RUNNER_OUTPUT, now, self.clock)
        end = self.timeline.launch(forward.seconds(self.device.times))
        names = list(sampled)
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=list(sampled.values()),
        )
        self._sampled = StepResult(output, end, self.clock)
        return StepResult(None, end, self.clock)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        assert self._sampled is not None, "a step is executed before its tokens are sampled"
        sampled, self._sampled = self._sampled, None
        return sampled if non_block else sampled.result()

    def check_health(self) -> None:
        pass

    def shutdown(self) -> None:
        pass


class _Worker:
    """What vLLM asks of its workers, by the names of their methods."""

    def __init__(self, executor: SimulatedExecutor) -> None:
        self._executor = executor
        self._config = executor.vllm_config

    def call(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = method if isinstance(method, str) else getattr(method, "__name__", repr(method))
        known = getattr(self, name, None)
        if known is None:
            raise NotImplementedError(f"the simulated device has no {name}, which this vLLM calls")
        return known(*args, **kwargs)

    def get_kv_cache_spec(self) -> dict[str, Any]:
        """Of each layer that has a cache, from the layer itself."""
        specs = {}
        layers = get_layers_from_vllm_config(self._config, AttentionLayerBase)
        for name, layer in layers.items():
            shared_with = getattr(layer, "kv_sharing_target_layer_name", None)
            if not shared_with and (spec := layer.get_kv_cache_spec(self._config)):
                specs[name] = spec
        return specs

    def get_supported_kv_cache_layouts(self) -> list[str]:
        from vllm.v1.kv_cache_layout import KVCacheLayout  # with the releases that ask for it

        return [layout.name for layout in KVCacheLayout]

    def determine_available_memory(self) -> int:
        """Bytes for the caches: the share that vLLM may use, less the weights. Nothing else takes any."""
        cache = self._config.cache_config
        if cache.kv_cache_memory_bytes:
            return int(cache.kv_cache_memory_bytes)
        device = self._executor.device
        share = int(device.memory_bytes * cache.gpu_memory_utilization)
        if share <= device.weights_bytes:
            raise InputError(
                f"--weights is {size_text(device.weights_bytes)}; --gpu-memory-utilization "
                f"{cache.gpu_memory_utilization:g} of --memory {size_text(device.memory_bytes)} leaves "
                "nothing beside that for the caches"
            )
        return share - device.weights_bytes

    def update_max_model_len(self, max_model_len: int) -> None:
        self._config.model_config.max_model_len = max_model_len

    def compile_or_warm_up_model(self) -> CompilationTimes:
        return CompilationTimes(language_model=0.0, encoder=0.0)

    def set_kv_cache_layout(self, *_: Any) -> None:
        pass

    def initialize_from_config(self, *_: Any) -> None:
        """No cache is allocated."""

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)
