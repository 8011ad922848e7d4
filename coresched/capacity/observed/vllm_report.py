"""vLLM 0.32's own report: /metrics, /version and /v1/models, and the lines it logs while it boots.

``vllm:cache_config_info`` (v1/metrics/loggers.py, ``log_metrics_info``) is a gauge whose labels are the
fields of CacheConfig as text (config/cache.py, ``metrics_info``), one sample an engine; ``num_gpu_blocks`` is
summed over the engines of a server (v1/engine/core_client.py), the other labels are of one. ``max_num_seqs``
and ``tensor_parallel_size`` are in no metric.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from coresched.capacity.observed.literals import LITERAL, literal
from coresched.capacity.observed.pools import GIB, ObservedPools
from coresched.errors import InputError

INFO = "vllm:cache_config_info{"
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

LABELS = (
    "block_size",
    "user_specified_block_size",
    "cache_dtype",
    "enable_prefix_caching",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
    "mamba_cache_dtype",
    "mamba_ssm_cache_dtype",
    "mamba_cache_mode",
    "prefix_match_unit",
)
"""The labels that are the flags of the pool."""


def read_metrics(
    text: str, source: str, *, version: str | None = None, models: object = None
) -> ObservedPools:
    """The pool in a /metrics text, with the decoded /v1/models where that was to be had.

    Raises InputError where the gauge or one of its needed labels is missing.
    """
    samples = [dict(_LABEL.findall(line)) for line in text.splitlines() if line.startswith(INFO)]
    if not samples:
        raise InputError(
            f"{source}: /metrics has no vllm:cache_config_info; it must be a vLLM server of about 0.32, "
            "started without --disable-log-stats"
        )
    labels = {name: re.sub(r"\\.", _unescape, value) for name, value in samples[0].items()}
    engines = len({sample.get("engine") for sample in samples})
    block, blocks = _label(labels, "block_size", source), _label(labels, "num_gpu_blocks", source)
    tokens = literal(labels.get("kv_cache_size_tokens", "None"))
    memory = literal(labels.get("kv_cache_memory_bytes", "None"))
    flags = {name: literal(labels[name]) for name in LABELS if name in labels}
    path, context = _served(models)
    if path is not None:
        flags["model"] = path
    return ObservedPools(
        engine="vllm",
        version=version,
        source=source,
        ranks=engines,
        kv_tokens=tokens if isinstance(tokens, int) else None,
        page_size=block,
        blocks=blocks // engines,
        pool_bytes=memory if isinstance(memory, int) else None,
        max_context=context,
        flags=flags,
        origins={
            "kv_tokens": "vllm:cache_config_info kv_cache_size_tokens",
            "page_size": "vllm:cache_config_info block_size",
            "blocks": "vllm:cache_config_info num_gpu_blocks"
            + (f" over {engines} engines" if engines > 1 else ""),
            "pool_bytes": "vllm:cache_config_info kv_cache_memory_bytes",
            "max_context": "/v1/models max_model_len",
        },
    )


def _unescape(found: "re.Match[str]") -> str:
    return _ESCAPES.get(found[0], found[0])


def _label(labels: Mapping[str, str], name: str, source: str) -> int:
    value = literal(labels.get(name, ""))
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        state = f'is "{labels[name][:40]}"' if name in labels else "is missing"
        raise InputError(
            f"{source}: the label {name} of vllm:cache_config_info {state}; it must be a count, as vLLM of "
            "about 0.32 gives once it has started"
        )
    return value


def _served(models: object) -> tuple[str | None, int | None]:
    """``root`` and ``max_model_len`` of the base model (entrypoints/openai/models/serving.py)."""
    cards = models.get("data") if isinstance(models, dict) else None
    card = cards[0] if isinstance(cards, list) and cards else None
    if not isinstance(card, dict):
        return None, None
    root, length = card.get("root"), card.get("max_model_len")
    context = length if isinstance(length, int) and not isinstance(length, bool) and length > 0 else None
    return (root if isinstance(root, str) else None), context


ARGUMENTS = re.compile(r"non-default args: \{")
"""entrypoints/serve/utils/api_utils.py: the first line with flags of a server, and of an offline LLM."""
ENGINE = re.compile(r"Initializing a V1 LLM engine \(v([^)\s]+)\) with config: ")
"""v1/engine/core.py; the config is VllmConfig's text (config/vllm.py, ``__str__``)."""
_ARGUMENT_NAMES = (
    "model",
    "dtype",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "decode_context_parallel_size",
    "data_parallel_size",
    "block_size",
    "enable_prefix_caching",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
    "mamba_cache_dtype",
    "mamba_ssm_cache_dtype",
    "gpu_memory_utilization",
)
_CONFIG_NAMES = (
    "model",
    "speculative_config",
    "dtype",
    "max_seq_len",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "kv_cache_dtype",
    "enable_prefix_caching",
)
_ARGUMENT = re.compile(r"'(" + "|".join(_ARGUMENT_NAMES) + rf")': ({LITERAL})")
_CONFIG = re.compile(r"(?:^|[ ,])(" + "|".join(_CONFIG_NAMES) + rf")=({LITERAL})")
_BLOCK = re.compile(r"Setting attention block size to (\d+) tokens to ensure that attention page size")
"""platforms/interface.py, ``_align_hybrid_block_size``."""
_MEMORY = re.compile(r"Available KV cache memory: ([\d.]+) GiB|reserved ([\d.]+) GiB memory for KV Cache")
"""v1/worker/gpu_worker.py: profiled, or set by --kv-cache-memory-bytes."""
_TOKENS = re.compile(r"\w KV cache size: ([\d,]+) tokens")
"""v1/core/kv_cache_utils.py; the word before is GPU, CPU or another device."""
_BLOCKS = re.compile(r"num_gpu_blocks_override=(\d+)$|after num_gpu_blocks is: (\d+)")


@dataclass
class VllmBoot:
    """One boot, line by line."""

    version: str | None = None
    flags: dict[str, object] = field(default_factory=dict)
    block: int | None = None
    memory: int | None = None
    tokens: int | None = None
    blocks: int | None = None

    @property
    def needed(self) -> str | None:
        """The line that this boot still lacks; None once the pool is known."""
        return None if self.tokens is not None else "KV cache size: ... tokens"

    def read(self, line: str) -> None:
        """Takes what the line has."""
        if ARGUMENTS.search(line):
            for name, value in _ARGUMENT.findall(line):
                self.flags.setdefault(name, literal(value))
        elif found := ENGINE.search(line):
            self.version = found[1]
            for name, value in _CONFIG.findall(line[found.end() :]):
                self.flags.setdefault(f"config.{name}", literal(value))
        elif found := _BLOCK.search(line):
            self.block = int(found[1])
        elif found := _MEMORY.search(line):
            bytes_ = _gib_bytes(found[1] or found[2])
            # One line a worker: the pool is sized by the one with least.
            self.memory = bytes_ if self.memory is None or bytes_ is None else min(self.memory, bytes_)
        elif found := _TOKENS.search(line):
            self.tokens = int(found[1].replace(",", "") or 0)
        elif found := _BLOCKS.search(line.rstrip()):
            self.blocks = int(found[1] or found[2])

    def pools(self, source: str) -> ObservedPools:
        """What was read, once ``needed`` is None."""
        flags = dict(self.flags)
        for name in _CONFIG_NAMES:
            if f"config.{name}" in flags:  # the resolved value, over the argument
                flags[{"kv_cache_dtype": "cache_dtype"}.get(name, name)] = flags.pop(f"config.{name}")
        dtype = flags.get("dtype")
        if isinstance(dtype, str):
            flags["dtype"] = dtype.removeprefix("torch.")
        exact = flags.get("kv_cache_memory_bytes")
        known = isinstance(exact, int) and exact > 0
        block = self.block or flags.get("block_size")
        replicas = flags.get("data_parallel_size")
        running, context = flags.get("max_num_seqs"), flags.get("max_seq_len")
        return ObservedPools(
            engine="vllm",
            version=self.version,
            source=source,
            ranks=replicas if isinstance(replicas, int) and replicas > 0 else 1,
            kv_tokens=self.tokens,
            max_running_requests=running if isinstance(running, int) else None,
            page_size=block if isinstance(block, int) else None,
            blocks=self.blocks,
            pool_bytes=exact if known and isinstance(exact, int) else self.memory,
            rounding_bytes=0 if known else GIB // 200,
            max_context=context if isinstance(context, int) else None,
            flags=flags,
            origins={
                "kv_tokens": "the line 'KV cache size'",
                "max_running_requests": "the line 'non-default args'",
                "page_size": "the line 'Setting attention block size'"
                if self.block
                else "the line 'non-default args'",
                "blocks": "the line with num_gpu_blocks",
                "pool_bytes": "kv_cache_memory_bytes in the line 'non-default args'"
                if known
                else "the line 'Available KV cache memory'",
                "max_context": "max_seq_len in the line 'Initializing a V1 LLM engine'",
            },
        )


def _gib_bytes(text: str) -> int | None:
    try:
        return round(float(text) * GIB)
    except (ValueError, OverflowError):
        return None
