"""Whether the vLLM at hand has the places this adapter enters, in the form it was written for."""

from __future__ import annotations

from coresched_engine.places import Place, names_in_init, resolve

from coresched.errors import InputError

TESTED_VERSIONS = ("0.28", "0.29", "0.30", "0.31", "0.32", "0.33")

_SCHEDULER = "vllm.v1.core.sched.scheduler.Scheduler"
_QUEUE = "vllm.v1.core.sched.request_queue.RequestQueue"
_POOL = "vllm.v1.core.block_pool.BlockPool"
_FREE_QUEUE = "vllm.v1.core.kv_cache_utils.FreeKVCacheBlockQueue"

PLACES = (
    Place(f"{_SCHEDULER}.__init__", ("self", "vllm_config", "kv_cache_config")),
    Place(f"{_SCHEDULER}.schedule", ("self",)),
    Place("vllm.v1.core.sched.async_scheduler.AsyncScheduler.schedule", ("self",)),
    Place(f"{_QUEUE}.add_request", ("self", "request")),
    Place(f"{_QUEUE}.pop_request", ("self",)),
    Place(f"{_QUEUE}.peek_request", ("self",)),
    Place(f"{_QUEUE}.prepend_request", ("self", "request")),
    Place(f"{_QUEUE}.prepend_requests", ("self", "requests")),
    Place(f"{_QUEUE}.remove_request", ("self", "request")),
    Place(f"{_QUEUE}.remove_requests", ("self", "requests")),
    Place(
        "vllm.v1.core.kv_cache_coordinator.KVCacheCoordinator.find_longest_cache_hit",
        ("self", "block_hashes", "max_cache_hit_length"),
    ),
    Place(f"{_SCHEDULER}.reset_prefix_cache", ("self",)),
    Place(f"{_POOL}.get_new_blocks", ("self", "num_blocks")),
    Place(f"{_POOL}.get_cached_block", ("self", "block_hash", "kv_cache_group_ids")),
    Place(f"{_POOL}.touch", ("self", "blocks")),
    Place(f"{_POOL}.free_blocks", ("self", "ordered_blocks")),
    Place(f"{_POOL}.evict_blocks", ("self", "block_ids")),
    Place(f"{_POOL}.get_num_free_blocks", ("self",)),
    Place(f"{_FREE_QUEUE}.remove", ("self", "block")),
    Place(f"{_FREE_QUEUE}.prepend_n", ("self", "blocks")),
    Place("vllm.v1.core.kv_cache_utils.get_block_hash", ("key",)),
)

_FIELDS = {
    _SCHEDULER: ("waiting", "running", "kv_cache_manager", "finished_req_ids"),
    "vllm.v1.request.Request": (
        *("request_id", "session_id", "sampling_params", "status", "num_preemptions", "block_hashes"),
        *("skip_reading_prefix_cache", "num_prompt_tokens", "num_computed_tokens", "shared_prefix_boundary"),
    ),
    "vllm.v1.core.kv_cache_manager.KVCacheManager": ("coordinator", "block_pool", "enable_caching"),
    "vllm.v1.core.kv_cache_coordinator.KVCacheCoordinator": ("single_type_managers",),
    "vllm.v1.core.single_type_kv_cache_manager.SingleTypeKVCacheManager": (
        *("block_size", "block_pool", "kv_cache_spec", "req_to_blocks", "num_cached_block"),
    ),
    "vllm.v1.core.single_type_kv_cache_manager.MambaManager": ("mamba_cache_mode",),
    _POOL: ("num_gpu_blocks", "hash_block_size", "free_block_queue"),
    _FREE_QUEUE: ("fake_free_list_head",),
}
_BLOCK = "vllm.v1.core.kv_cache_utils.KVCacheBlock"
_BLOCK_FIELDS = ("block_id", "ref_cnt", "is_null", "block_hash", "block_hash_num_tokens", "next_free_block")


def vllm_version() -> str:
    """The version vLLM gives itself, or "of unknown version"."""
    return str(getattr(resolve("vllm"), "__version__", "of unknown version"))


def is_tested(version: str) -> bool:
    return ".".join(version.split(".")[:2]) in TESTED_VERSIONS


def missing() -> list[str]:
    """What this adapter needs and the vLLM at hand lacks, a phrase each. Imports what it looks at."""
    found = [reason for place in PLACES for reason in place.differences()]
    for path, fields in _FIELDS.items():
        has = names_in_init(path)
        found += [f"{path} has no {name}" for name in fields if name not in has]
    block = resolve(_BLOCK)
    found += [f"{_BLOCK} has no {name}" for name in _BLOCK_FIELDS if not hasattr(block, name)]
    ours = {place.path.rpartition(".")[2] for place in PLACES if place.path.startswith(_QUEUE)}
    ours |= {"__bool__", "__len__", "__iter__"}
    required: frozenset[str] = getattr(resolve(_QUEUE), "__abstractmethods__", frozenset())
    found += [f"{_QUEUE} asks for {name}, which is new" for name in sorted(required - ours)]
    return found


def check_engine() -> None:
    """Raises InputError where the vLLM at hand lacks something, saying what."""
    if lacks := missing():
        raise InputError(
            f"coresched_vllm cannot schedule vLLM {vllm_version()}: {'; '.join(lacks)}; "
            f"use vLLM {', '.join(TESTED_VERSIONS)}"
        )
