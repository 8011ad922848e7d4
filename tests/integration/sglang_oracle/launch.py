"""How the engine turns launch flags into the settings that its pool solve reads."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from integration.sglang_oracle.source import compile_definitions
from integration.sglang_oracle.wheel import Wheel

FOLDER = "sglang/srt/arg_groups"
RESOLUTION = (
    ("model_override_base.py", "mamba_extra_buffer_of"),
    ("overrides.py", "mamba_extra_buffer_lazy_of"),
    ("overrides.py", "_pipeline_parallel_overlap_disable"),
    ("mamba_hook.py", "validate_mamba_no_buffer"),
    ("arg_utils.py", "_field_to_cli_name"),
)


@dataclass(frozen=True)
class LaunchFlag:
    """A launch flag: its spelling on the command line, and the fallback written beside it, if any."""

    option: str
    fallback: Any


@dataclass
class Settings:
    """The engine's configuration namespaces, as far as the pool solve reads them."""

    schedule: SimpleNamespace
    memory: SimpleNamespace
    exec_: SimpleNamespace
    spec: SimpleNamespace
    parallel: SimpleNamespace
    disagg: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(disaggregation_mode="null", enable_pd_role_switch=False)
    )
    mm: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(mm_feature_transport=None))


class Launch:
    """The engine's own resolution of flags, compiled from its files."""

    def __init__(self, wheel: Wheel) -> None:
        self._wheel = wheel
        self._engine: dict[str, Any] = {
            "register_post_process": lambda function: function,
            "logger": logging.getLogger(__name__),
        }
        for file, name in RESOLUTION:
            text = wheel.text(f"{FOLDER}/{file}")
            compiled = compile_definitions(text, file, names=[name], surroundings=self._engine)
            self._engine[name] = compiled[name]
        hook = wheel.text(f"{FOLDER}/speculative_hook.py")
        (running,) = set(re.findall(r"max_running_requests=(\d+)", hook))  # the same for every algorithm
        self.speculative_max_running = int(running)

    def flags(self) -> dict[str, LaunchFlag]:
        """Every flag with a command-line spelling, by field name."""
        found = {}
        for group in ("schedule", "exec_", "parallel", "spec", "memory", "model"):
            for node in ast.walk(ast.parse(self._wheel.text(f"{FOLDER}/fields/{group}.py"))):
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    details = _details(node.annotation)
                    if not details.get("no_cli"):
                        option = details.get("cli_name") or self._engine["_field_to_cli_name"](node.target.id)
                        found[node.target.id] = LaunchFlag(option, details.get("fallback"))
        return found

    def settings(self, flags: Mapping[str, Any]) -> Settings:
        view = SimpleNamespace(**flags)
        vars(view).update(self._engine["_pipeline_parallel_overlap_disable"](view))
        if view.speculative_num_draft_tokens is not None and view.max_running_requests is None:
            view.max_running_requests = self.speculative_max_running
        schedule = SimpleNamespace(
            page_size=view.page_size,
            mem_fraction_static=1.0,  # the memory given is what is left: no further slack
            prefill_max_requests=None,
            mamba_full_memory_ratio=view.mamba_full_memory_ratio,
            max_mamba_cache_size=view.max_mamba_cache_size,
            max_running_requests=view.max_running_requests,
            max_total_tokens=view.max_total_tokens,
            disable_overlap_schedule=view.disable_overlap_schedule,
        )
        mamba = SimpleNamespace(
            enable_linear_replayssm_spec=False,
            enable_mamba_extra_buffer=self._engine["mamba_extra_buffer_of"](view),
            enable_mamba_extra_buffer_lazy=self._engine["mamba_extra_buffer_lazy_of"](view),
        )
        prefill = SimpleNamespace(full_prefill_max_req=None, backend=None)
        graph = SimpleNamespace(cuda_graph_config=SimpleNamespace(prefill=prefill))
        return Settings(
            schedule=schedule,
            memory=SimpleNamespace(disable_radix_cache=view.disable_radix_cache, enable_unified_memory=False),
            exec_=SimpleNamespace(mamba=mamba, graph=graph),
            spec=SimpleNamespace(speculative_num_draft_tokens=view.speculative_num_draft_tokens),
            # Stages agree on the smallest token count over a network; the caller's kv_bytes is of that stage.
            parallel=SimpleNamespace(
                pp_size=1,
                launch_world_size=1,
                world_group=SimpleNamespace(cpu_group=None),
                attn_dcp_size=view.dcp_size,
            ),
        )

    def check_strategy(self, settings: Settings) -> None:
        """The engine's refusal of no_buffer with pages or overlap; AssertionError as it raises it."""
        if not settings.memory.disable_radix_cache and not settings.exec_.mamba.enable_mamba_extra_buffer:
            view = SimpleNamespace(**vars(settings.schedule), attention_backend="triton")
            self._engine["validate_mamba_no_buffer"](view, "the model")


def _details(annotation: ast.expr) -> dict[str, Any]:
    """The constant keywords of the ``Arg(...)`` in a field's annotation."""
    return {
        keyword.arg: keyword.value.value
        for call in ast.walk(annotation)
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg and isinstance(keyword.value, ast.Constant)
    }
