"""Whether the vLLM at hand has the places this adapter enters, in the form it was written for."""

from __future__ import annotations

from coresched_engine.places import Place, names_in_init, resolve

from coresched.errors import InputError

TESTED_VERSIONS = ("0.28", "0.29", "0.30", "0.31", "0.32", "0.33")

_SCHEDULER = "vllm.v1.core.sched.scheduler.Scheduler"
_QUEUE = "vllm.v1.core.sched.request_queue.RequestQueue"

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
)

_FIELDS = {
    _SCHEDULER: ("waiting", "running", "kv_cache_manager"),
    "vllm.v1.request.Request": (
        *("request_id", "session_id", "sampling_params", "status", "block_hashes"),
        "skip_reading_prefix_cache",
    ),
    "vllm.v1.core.kv_cache_manager.KVCacheManager": ("coordinator", "enable_caching"),
}


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
