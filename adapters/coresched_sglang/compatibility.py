"""Whether the SGLang at hand has the places this adapter enters, in the form it was written for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coresched_engine.places import Place, names_in_init, resolve

from coresched_sglang.names import POLICIES, ROUTING_PREFIX

TESTED_VERSIONS = ("0.5.20", "0.5.22", "0.5.23")

_REQUEST_FIELDS = ("routing_key", "num_matched_prefix_tokens", "priority")

PLACES = (
    Place("sglang.srt.plugins.hook_registry.HookRegistry.register", ("target", "hook", "hook_type")),
    Place("sglang.srt.server_args.ServerArgs.add_cli_args", ("parser",)),
    Place("sglang.srt.server_args.ServerArgs.check_server_args", ("self",)),
    Place(
        "sglang.srt.managers.schedule_policy.SchedulePolicy.__init__",
        (
            "self",
            "policy",
            "tree_cache",
            "enable_hierarchical_cache",
            "enable_priority_scheduling",
            "schedule_low_priority_values_first",
        ),
    ),
    Place(
        "sglang.srt.managers.schedule_policy.SchedulePolicy.calc_priority",
        ("self", "waiting_queue", "running_batch"),
    ),
    Place("sglang.srt.managers.scheduler.Scheduler.get_new_batch_prefill", ("self",)),
)

_CACHE = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache"
_TREE = "sglang.srt.mem_cache.unified_cache.unified_tree_core_interface.UnifiedTreeCoreInterface"

# Beyond these, routing-residency follows and asks the cache, and has a say in admissions. All since 0.5.22.
RESIDENCY_PLACES = (
    Place(f"{_CACHE}.checkpoint_into_tree", ("self", "req")),
    Place(f"{_CACHE}.evict", ("self", "params")),
    Place(f"{_CACHE}.evict_for_alloc", ("self", "params")),
    Place(f"{_CACHE}.reset", ("self",)),
    Place(f"{_CACHE}.lock", ("self", "node_id")),
    Place(f"{_CACHE}.unlock", ("self", "lock")),
    Place(f"{_CACHE}.mamba_evictable_size", ("self",)),
    Place(f"{_CACHE}.full_evictable_size", ("self",)),
    Place(f"{_TREE}.get_component_device_value", ("self", "node_id", "component_type")),
    Place(f"{_TREE}.is_full_device_evicted", ("self", "node_id")),
    Place(f"{_TREE}.collect_path_info", ("self", "end_node_ids")),
    Place(
        "sglang.srt.mem_cache.base_prefix_cache.EvictParams", ("num_tokens", "swa_num_tokens", "mamba_num")
    ),
    Place("sglang.srt.managers.scheduler.Scheduler.get_prefill_adder_class", ("self",)),
    Place("sglang.srt.managers.schedule_policy.PrefillAdder.add_one_req", ("self", "req")),
)

# SGLang's own match of one request with its prefix cache; 0.5.22 moved and renamed it.
MATCH = Place("sglang.srt.mem_cache.common.match_kv_cache", ("req", "tree_cache"))
MATCH_BEFORE = Place("sglang.srt.managers.schedule_policy.match_prefix_for_req", ("tree_cache", "req"))


def sglang_version() -> str:
    """The version SGLang gives itself, or "of unknown version"."""
    return str(getattr(resolve("sglang"), "__version__", "of unknown version"))


def missing() -> list[str]:
    """What this adapter needs and the SGLang at hand lacks, a phrase each. Imports what it looks at."""
    found = [reason for place in PLACES for reason in place.differences()]
    if prefix_match() is None:
        found.append(f"neither {MATCH} nor {MATCH_BEFORE} exists")
    fields = names_in_init("sglang.srt.managers.schedule_batch.Req")
    for name in _REQUEST_FIELDS:
        if name not in fields:
            found.append(f"sglang.srt.managers.schedule_batch.Req has no {name}")
    return found


def residency_missing() -> list[str]:
    """What routing-residency needs beyond `missing` and the SGLang at hand lacks, a phrase each."""
    return [reason for place in RESIDENCY_PLACES for reason in place.differences()]


def offered_policies() -> tuple[str, ...]:
    """Those of our policies that the SGLang at hand can have, if it lacks nothing of `missing`."""
    return (ROUTING_PREFIX,) if residency_missing() else POLICIES


def prefix_match() -> Callable[[Any, Any], object] | None:
    """SGLang's own match of one request, `match(request, tree_cache)`; None if it has neither form.

    It leaves the cached prompt tokens in the request's ``num_matched_prefix_tokens``.
    """
    if not list(MATCH.differences()):
        matched: Callable[[Any, Any], object] = resolve(MATCH.path)
        return matched
    if list(MATCH_BEFORE.differences()):
        return None
    before = resolve(MATCH_BEFORE.path)

    def match(request: Any, tree_cache: Any) -> object:
        return before(tree_cache, request, include_req=True)

    return match
