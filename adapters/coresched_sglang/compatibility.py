"""Whether the SGLang at hand has the places this adapter enters, in the form it was written for."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

TESTED_VERSIONS = ("0.5.20", "0.5.22", "0.5.23")

_REQUEST_FIELDS = ("routing_key", "num_matched_prefix_tokens", "priority")


@dataclass(frozen=True)
class Place:
    """A function or method of SGLang and its first parameters; what follows them is passed on unread."""

    path: str
    parameters: tuple[str, ...]


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

# SGLang's own match of one request with its prefix cache; 0.5.22 moved and renamed it.
MATCH = Place("sglang.srt.mem_cache.common.match_kv_cache", ("req", "tree_cache"))
MATCH_BEFORE = Place("sglang.srt.managers.schedule_policy.match_prefix_for_req", ("tree_cache", "req"))


def sglang_version() -> str:
    """The version SGLang gives itself, or "of unknown version"."""
    return str(getattr(_resolve("sglang"), "__version__", "of unknown version"))


def missing() -> list[str]:
    """What this adapter needs and the SGLang at hand lacks, a phrase each. Imports what it looks at."""
    found = [reason for place in PLACES for reason in _differences(place)]
    if prefix_match() is None:
        found.append(f"neither {_signature(MATCH)} nor {_signature(MATCH_BEFORE)} exists")
    request = _resolve("sglang.srt.managers.schedule_batch.Req")
    code = getattr(getattr(request, "__init__", None), "__code__", None)
    for name in _REQUEST_FIELDS:
        if code is None or name not in code.co_names:
            found.append(f"sglang.srt.managers.schedule_batch.Req has no {name}")
    return found


def prefix_match() -> Callable[[Any, Any], object] | None:
    """SGLang's own match of one request, `match(request, tree_cache)`; None if it has neither form.

    It leaves the cached prompt tokens in the request's ``num_matched_prefix_tokens``.
    """
    if not list(_differences(MATCH)):
        matched: Callable[[Any, Any], object] = _resolve(MATCH.path)
        return matched
    if list(_differences(MATCH_BEFORE)):
        return None
    before = _resolve(MATCH_BEFORE.path)

    def match(request: Any, tree_cache: Any) -> object:
        return before(tree_cache, request, include_req=True)

    return match


def _differences(place: Place) -> Iterator[str]:
    function = _resolve(place.path)
    if function is None:
        yield f"{place.path} does not exist"
        return
    try:
        names = tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        yield f"{place.path} is no function with a signature"
        return
    if names[: len(place.parameters)] != place.parameters:
        yield f"{place.path} takes ({', '.join(names)}), not ({', '.join(place.parameters)}, ...)"


def _signature(place: Place) -> str:
    return f"{place.path}({', '.join(place.parameters)}, ...)"


def _resolve(path: str) -> Any:
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError):
        return None
