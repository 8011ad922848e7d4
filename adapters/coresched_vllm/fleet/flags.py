"""What of vLLM's configuration an engine in virtual time has no answer for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

ONE: Final = {
    "pipeline_parallel_size": "pipeline stages cannot be simulated: leave it out",
    "data_parallel_size": "give more --workers instead",
    "decode_context_parallel_size": "context parallelism cannot be simulated: leave it out",
    "prefill_context_parallel_size": "context parallelism cannot be simulated: leave it out",
    "nnodes": "several nodes cannot be simulated: leave it out",
}
"""Fields of ParallelConfig of at least 1, with what to do where one is above it."""

ABSENT: Final = {
    "speculative_config": ("--speculative-config", "drafts and their acceptance are not modelled"),
    "kv_transfer_config": ("--kv-transfer-config", "KV bytes do not exist, so none are sent or offloaded"),
    "ec_transfer_config": ("--ec-transfer-config", "encoders compute nothing, so nothing is sent"),
    "lora_config": ("--enable-lora", "adapters have no weights to add to"),
}
"""Parts of VllmConfig that are None unless asked for, with the flag that does and why they cannot be."""


def refusal(config: Any, flags: Sequence[str]) -> str | None:
    """Why engines of this VllmConfig cannot be simulated, naming flag, value and fix; None if they can."""
    for name, fix in ONE.items():
        if (value := getattr(config.parallel_config, name, 1)) > 1:
            return f"--{name.replace('_', '-')} is {value}; {fix}"
    for name, (flag, reason) in ABSENT.items():
        if getattr(config, name, None) is not None:
            return f"{flag} is given, but {reason}: leave it out"
    if config.model_config.runner_type != "generate":
        return (
            f"--runner is {config.model_config.runner_type}; only generating models have turns: leave it out"
        )
    if any(flag.split("=")[0].replace("_", "-") == "--attention-backend" for flag in flags):
        return (
            "--attention-backend is given, but there are no kernels here: leave it out, and give "
            "--block-size where that backend needs another one than a multiple of 16"
        )
    return None
