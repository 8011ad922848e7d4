"""Where the simulated device enters SGLang, and whether those places are as it needs them."""

import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from coresched.capacity.fields import one_line
from coresched_simdevice import execution, memory, model, requests

Kind = Literal["BEFORE", "AFTER", "AROUND", "REPLACE"]


@dataclass(frozen=True)
class Hook:
    """A function of SGLang's, what is put in its place or around it, and the parameters it must have."""

    target: str
    kind: Kind
    function: Callable[..., Any]
    parameters: tuple[str, ...] = ()


_SRT: Final = "sglang.srt."
_RUNNER: Final = _SRT + "model_executor.model_runner.ModelRunner."
_STATES: Final = _SRT + "mem_cache.memory_pool.MambaPool."
_STARTUP: Final = _SRT + "distributed.bootstrap."
_WORKER: Final = _SRT + "managers.tp_worker.TpModelWorker."


def _nothing(*args: Any, **kwargs: Any) -> None:
    """For writes to states, which have no bytes, and for the threads of forwards on a CPU."""


HOOKS: Final = (
    Hook(
        _SRT + "utils.common.get_available_gpu_memory", "REPLACE", memory.available_gib, ("device", "gpu_id")
    ),
    Hook(_STARTUP + "_bind_threads_if_cpu", "REPLACE", _nothing, ("device",)),
    Hook(_STARTUP + "_init_cpu_threads_env", "REPLACE", _nothing, ("local_omp_cpuid",)),
    Hook(_RUNNER + "load_model", "REPLACE", model.load_model),
    Hook(_RUNNER + "init_attention_backends", "REPLACE", model.init_attention_backends),
    Hook(_RUNNER + "init_cuda_graphs", "REPLACE", model.init_cuda_graphs, ("capture_decode_cuda_graph",)),
    Hook(
        _SRT + "mem_cache.kv_cache_configurator.KVCacheConfigurator._init_pools", "AROUND", memory.init_pools
    ),
    Hook(_STATES + "copy_from", "REPLACE", _nothing),
    Hook(_STATES + "clear_slots", "REPLACE", _nothing),
    Hook(_WORKER + "__init__", "AFTER", execution.after_worker_init),
    Hook(_WORKER + "forward_batch_generation", "REPLACE", execution.forward_batch_generation, ("batch",)),
    Hook(_SRT + "managers.scheduler.Scheduler.run_batch", "AFTER", execution.after_run_batch, ("batch",)),
    Hook(
        _SRT + "managers.tokenizer_manager.TokenizerManager._validate_one_request",
        "BEFORE",
        requests.before_validation,
        ("obj", "input_ids"),
    ),
)

FIELDS: Final = {
    _SRT + "managers.schedule_batch.ScheduleBatch": (
        "forward_mode",
        "reqs",
        "decoding_reqs",
        "prefix_lens",
        "extend_lens",
        "seq_lens_cpu",
    ),
    _SRT + "managers.utils.GenerationBatchResult": (
        "logits_output",
        "next_token_ids",
        "can_run_cuda_graph",
        "copy_done",
    ),
}
"""Fields of SGLang's data classes that are read or set."""

_before: dict[str, object] = {}
"""Each target as it was when its hook was registered."""


def unsupported(hooks: Iterable[Hook] = HOOKS, fields: dict[str, tuple[str, ...]] = FIELDS) -> list[str]:
    """What SGLang lacks of the places that are hooked and the fields that are used; none if it fits."""
    lacking = []
    for hook in hooks:
        try:
            found = pkgutil.resolve_name(hook.target)
        except (ImportError, AttributeError) as error:
            lacking.append(f"{hook.target} ({one_line(str(error))})")
            continue
        has = inspect.signature(found).parameters
        lacking += [f"{hook.target}({name})" for name in hook.parameters if name not in has]
    for name, needed in fields.items():
        try:
            known = pkgutil.resolve_name(name).__dataclass_fields__
        except (ImportError, AttributeError) as error:
            lacking.append(f"{name} ({one_line(str(error))})")
            continue
        lacking += [f"{name}.{field}" for field in needed if field not in known]
    return lacking


def register_hooks() -> None:
    """Hand the hooks to SGLang, which applies them after the last plugin."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for hook in HOOKS:
        _before[hook.target] = pkgutil.resolve_name(hook.target)
        HookRegistry.register(hook.target, hook.function, HookType[hook.kind])


def missing_hooks() -> list[str]:
    """The targets that are still SGLang's own: hooks that are not registered, or could not be applied."""
    return [
        hook.target
        for hook in HOOKS
        if hook.target not in _before or pkgutil.resolve_name(hook.target) is _before[hook.target]
    ]
