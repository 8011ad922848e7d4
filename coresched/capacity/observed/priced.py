"""What a token and a state cost on an observed engine, from the model's dimensions and the engine's flags."""

from dataclasses import dataclass
from pathlib import Path

from coresched.capacity.catalogue import is_catalogued, similar_models
from coresched.capacity.engines import VERSIONS
from coresched.capacity.fields import shown
from coresched.capacity.footprint import Footprint, footprint
from coresched.capacity.observed.pools import ObservedPools
from coresched.capacity.observed.vllm_size import cache_sizes, reported_blocks
from coresched.capacity.vllm import DEFAULT_BLOCK_TOKENS, BlockLayout
from coresched.errors import InputError

KERNEL_BLOCKS = (16, 32, 64, 128, 256)
"""Smallest blocks of vLLM's attention backends; which of them runs is not reported."""

DTYPES = {"half": "float16", "float": "float32"}


@dataclass(frozen=True)
class Priced:
    """The footprint under the engine's flags, and the same with bf16 states where those would be smaller."""

    footprint: Footprint
    with_bf16_states: Footprint | None
    kernel_block: int
    """On vLLM, the kernel's block under which the block size comes out as reported; 16 where none does."""


def price(observed: ObservedPools, model: str | None = None, tp: int | None = None) -> Priced:
    """The footprint of the observed engine's model, or of ``model`` on ``tp`` ranks where given.

    What an engine calls its model is often a folder of its own machine. Raises InputError where the model
    cannot be found or priced, or the number of ranks is not reported.
    """
    vllm = observed.engine == "vllm"
    name = model or observed.text("model" if vllm else "model_path")
    if name is None:
        raise InputError(f"{observed.source}: the model is not reported; pass --model")
    ranks = tp or observed.count("tensor_parallel_size" if vllm else "tp_size")
    if ranks is None:
        raise InputError(f"{observed.source}: the number of tensor-parallel ranks is not reported; pass --tp")
    if model is None:
        _require_known(observed, name)
    if not vllm:
        return Priced(*_both(observed, name, ranks, DEFAULT_BLOCK_TOKENS), DEFAULT_BLOCK_TOKENS)
    first = _both(observed, name, ranks, KERNEL_BLOCKS[0])
    for kernel in KERNEL_BLOCKS:
        tried = first if kernel == KERNEL_BLOCKS[0] else _both(observed, name, ranks, kernel)
        if tried[0].layout is not None and _agrees(observed, tried[0].layout):
            return Priced(*tried, kernel)
    return Priced(*first, KERNEL_BLOCKS[0])


def _agrees(observed: ObservedPools, layout: BlockLayout) -> bool:
    """Whether the block size is the reported one or, where a log has none, the KV cache size is."""
    if observed.page_size is not None:
        return layout.block_tokens == observed.page_size
    blocks = reported_blocks(observed, layout)
    caching = observed.flags.get("enable_prefix_caching") is not False
    sizes = [] if blocks is None else cache_sizes(observed, layout, blocks, caching)
    return any(low <= (observed.kv_tokens or 0) <= high for low, high in sizes)


def _both(observed: ObservedPools, model: str, tp: int, kernel: int) -> tuple[Footprint, Footprint | None]:
    if observed.engine == "vllm":
        dtype = observed.text("mamba_ssm_cache_dtype")
    else:
        dtype = observed.text("mamba_ssm_dtype")
    priced = _footprint(observed, model, tp, kernel, None if dtype == "auto" else dtype)
    if priced.state_dtype != "float32" or not priced.state_layers:
        return priced, None
    try:
        smaller = _footprint(observed, model, tp, kernel, "bfloat16")
    except InputError:
        return priced, None
    return priced, smaller if smaller.state_layer_bytes < priced.state_layer_bytes else None


def _footprint(
    observed: ObservedPools, model: str, tp: int, kernel: int, state_dtype: str | None
) -> Footprint:
    dtype = observed.text("dtype")
    dtype = None if dtype in (None, "auto") else DTYPES.get(dtype or "", dtype)
    if observed.engine == "sglang":
        return footprint(
            _known(model),
            "sglang",
            tp,
            pp=observed.count("pp_size") or 1,
            attention_dp=observed.count("attn_dp_size") or 1,
            dcp=observed.count("dcp_size") or 1,
            dtype=dtype,
            kv_dtype=observed.text("kv_cache_dtype"),
            state_dtype=state_dtype,
        )
    block = observed.count("block_size") if observed.switch("user_specified_block_size") else None
    conv = observed.text("mamba_cache_dtype")
    return footprint(
        _known(model),
        "vllm",
        tp,
        pp=observed.count("pipeline_parallel_size") or 1,
        dcp=observed.count("decode_context_parallel_size") or 1,
        dtype=dtype,
        kv_dtype=observed.text("cache_dtype"),
        conv_dtype=None if conv == "auto" else conv,
        state_dtype=state_dtype,
        block_tokens=block or kernel,
        kernel_block_tokens=kernel,
    )


def _require_known(observed: ObservedPools, name: str) -> None:
    """Raises InputError where the name that the engine reports says nothing here."""
    if is_catalogued(_known(name)) or _readable(name):
        return
    similar = similar_models(name.rstrip("/").rpartition("/")[2])
    hint = f" (the catalogue has {', '.join(similar)})" if similar else ""
    raise InputError(
        f"{observed.source}: the model it reports, {shown(name)}, has no config.json on this machine; pass "
        f"--model with one, or with a name of the catalogue{hint}"
    )


def _readable(name: str) -> bool:
    try:
        return Path(name).is_file() or (Path(name) / "config.json").is_file()
    except (OSError, ValueError):  # a name too long for a path, or with a null byte
        return False


def _known(model: str) -> str:
    """The model as it was given, or the last part of its name where only that is in the catalogue."""
    last = model.rstrip("/").rpartition("/")[2]
    return last if is_catalogued(last) and not is_catalogued(model) and not _readable(model) else model


def tested(observed: ObservedPools) -> bool | None:
    """Whether the arithmetic is held to this release; None where the engine does not say its release."""
    if observed.version is None:
        return None
    release = observed.version.removeprefix("v").partition("+")[0]
    return release == VERSIONS[observed.engine]
