"""Which of SGLang's flags the simulated device has no answer for."""

from typing import Any, Final

ONE_DEVICE: Final = {
    "pp_size": "pipeline stages",
    "dcp_size": "decode context parallelism",
    "attn_cp_size": "context parallelism",
    "attn_dp_size": "attention data parallelism",
    "nnodes": "several nodes",
}
"""Flags of at least 1, with what they ask for above it."""

SWITCHES: Final = {
    "speculative_algorithm": "drafts and their acceptance are not modelled",
    "enable_hierarchical_cache": "KV bytes do not exist, so none move to the host",
    "enable_lmcache": "KV bytes do not exist, so none move to LMCache",
    "enable_unified_memory": "SGLang builds that pool on GPUs only",
    "enable_lora": "adapters have no weights to add to",
    "lora_paths": "adapters have no weights to add to",
    "enable_two_batch_overlap": "its duration is not modelled",
    "enable_single_batch_overlap": "its duration is not modelled",
    "enable_pdmux": "split prefill is not modelled",
    "dllm_algorithm": "diffusion is not modelled",
    "is_embedding": "nothing is computed, so there is no embedding",
    "enable_return_hidden_states": "nothing is computed, so there are no hidden states",
    "cpu_offload_gb": "there are no weights to offload",
    "enable_memory_saver": "there is nothing to release",
}
"""Flags that are off when false, with why they cannot be on."""


def refusal(server_args: Any) -> str | None:
    """Why a server of these flags cannot be simulated, naming flag, value and fix; None if it can."""
    if server_args.device != "cpu":
        return f"--device is {server_args.device}; the simulated device is --device cpu"
    if server_args.disaggregation_mode != "null":
        return (
            f"--disaggregation-mode is {server_args.disaggregation_mode}; KV bytes do not exist, so none are "
            "sent: leave it out"
        )
    for name, meaning in ONE_DEVICE.items():
        value = getattr(server_args, name, 1)
        if value is not None and value > 1:
            return f"{_flag(name)} is {value}; {meaning} cannot be simulated: leave it out"
    for name, reason in SWITCHES.items():
        value = getattr(server_args, name, None)
        if value:
            return f"{_flag(name)} is given, but {reason}: leave it out"
    return None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
