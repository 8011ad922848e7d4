"""SGLang 0.5.23's own report: /server_info, and the lines it logs while it boots.

Field names are from the release's files under sglang/srt: the endpoint is ``server_info`` in
entrypoints/http_server.py, its ``internal_states`` (one a DP rank) are built in
managers/scheduler_components/internal_state.py and memory_usage.py, and K replaces ``max_mamba_cache_size``
there in mem_cache/kv_cache_configurator.py (``_handle_max_mamba_cache``). At the top level the same name is
what was asked for.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coresched.capacity.observed.literals import LITERAL, literal
from coresched.capacity.observed.pools import GIB, ObservedPools
from coresched.capacity.sglang_flags import SglangFlags, slots_per_request
from coresched.errors import InputError

FLAGS = (
    "model_path",
    "context_length",
    "dtype",
    "kv_cache_dtype",
    "max_running_requests",
    "max_total_tokens",
    "mem_fraction_static",
    "page_size",
    "disable_radix_cache",
    "enable_unified_memory",
    "disable_overlap_schedule",
    "tp_size",
    "dcp_size",
    "pp_size",
    "dp_size",
    "attn_dp_size",
    "speculative_algorithm",
    "speculative_num_draft_tokens",
    "max_mamba_cache_size",
    "mamba_ssm_dtype",
    "mamba_max_states_per_path",
    "mamba_full_memory_ratio",
    "mamba_radix_cache_strategy",
    "mamba_track_interval",
    "enable_int8_mamba_checkpoint",
    "enable_linear_replayssm",
    "enable_linear_replayssm_spec",
)
"""The fields of ServerArgs (arg_groups/fields/) that the pools depend on; no secret is among them."""

SKIP_DECODE_LOCK = "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK"


def read_server_info(info: Mapping[str, object], source: str) -> ObservedPools:
    """The pools in a decoded /server_info. Raises InputError naming what is missing or of a wrong type."""
    states = info.get("internal_states")
    if not isinstance(states, list) or not states or not all(isinstance(state, dict) for state in states):
        raise _unexpected(source, "internal_states is missing or no array of objects")
    tokens, running, slots, kv_gib = [], [], [], []
    for state in states:
        usage = state.get("memory_usage")
        if not isinstance(usage, dict):
            raise _unexpected(source, "internal_states[].memory_usage is missing")
        tokens.append(_required(usage, "token_capacity", "internal_states[].memory_usage.", source))
        running.append(
            _required(state, "effective_max_running_requests_per_dp", "internal_states[].", source)
        )
        if state.get("max_mamba_cache_size") is not None:
            slots.append(_required(state, "max_mamba_cache_size", "internal_states[].", source))
        kv_gib.append(usage.get("kvcache"))
    flags = {name: info[name] for name in FLAGS if name in info}
    exported = states[0].get("env_vars")
    if isinstance(exported, dict) and SKIP_DECODE_LOCK in exported:
        flags[SKIP_DECODE_LOCK] = str(exported[SKIP_DECODE_LOCK]).lower() in ("1", "true", "yes", "y")
    version, context = info.get("version"), info.get("context_length")
    least = "internal_states" if len(states) == 1 else f"the least of {len(states)} internal_states"
    return ObservedPools(
        engine="sglang",
        version=version if isinstance(version, str) else None,
        source=source,
        ranks=len(states),
        state_slots=min(slots) if slots else None,
        kv_tokens=min(tokens),
        max_running_requests=min(running),
        page_size=_count(info.get("page_size")),
        kv_pool_bytes=_gib(kv_gib[tokens.index(min(tokens))]),
        rounding_bytes=GIB // 2000,
        max_context=_count(context),
        flags=flags,
        origins={
            "state_slots": f"max_mamba_cache_size of {least}",
            "kv_tokens": f"memory_usage.token_capacity of {least}",
            "max_running_requests": f"effective_max_running_requests_per_dp of {least}",
            "page_size": "page_size",
            "kv_pool_bytes": "memory_usage.kvcache",
            "max_context": "context_length",
        },
    )


def _unexpected(source: str, what: str) -> InputError:
    return InputError(
        f"{source}: {what} in what /server_info answered; it must be an SGLang server of about 0.5.23 "
        "(older ones: pass the boot log with --log)"
    )


def _required(values: Mapping[str, object], name: str, path: str, source: str) -> int:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        state = "is missing" if name not in values else "is no count"
        raise _unexpected(source, f"{path}{name} {state}")
    return value


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _gib(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1 << 20:
        return None
    return round(value * GIB)


BOOT = re.compile(r"server_args=(ServerArgs\(|\{)")
"""entrypoints/engine.py logs ``server_args=`` and a dict; releases before 0.5.15 or so, a ServerArgs(...)."""
_FLAG = re.compile(r"(?<![\w.])'?(" + "|".join(FLAGS) + rf")'?(?:: |=)({LITERAL})")
_STATES = re.compile(
    r"Mamba Cache is allocated\. max_mamba_cache_size: (\d+), "
    r"conv_state size: ([\d.]+) ?GB, ssm_state size: ([\d.]+) ?GB"
)
"""mem_cache/memory_pool.py; ``GB`` there is 2**30 bytes."""
_KV = re.compile(r"(?<!\w )KV Cache is allocated\..*? (?:K size: ([\d.]+) GB, V|KV) size: ([\d.]+) GB")
"""The same file; a label before "KV Cache" marks a draft's pool."""
_RESERVE = re.compile(r"\(max_mamba_cache_size=\d+, (\d+) state slots per request\)")
"""mem_cache/kv_cache_configurator.py, where states cap the running requests."""
_READY = re.compile(
    r"max_total_num_tokens=(\d+), .*?max_running_requests=(\d+), context_len=(\d+)",
)
"""managers/scheduler.py, one line a DP rank and pipeline stage."""


@dataclass
class SglangBoot:
    """One boot, line by line."""

    flags: dict[str, object] = field(default_factory=dict)
    slots: int | None = None
    state_bytes: int | None = None
    kv_bytes: int | None = None
    reserve: int | None = None
    """S as logged; an environment variable that lowers it is not."""
    ready: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def needed(self) -> str | None:
        """The line that this boot still lacks; None once the pools are known."""
        return None if self.ready else "max_total_num_tokens=..., max_running_requests=..."

    def read(self, line: str) -> None:
        """Takes what the line has."""
        if BOOT.search(line):
            for name, value in _FLAG.findall(line):
                self.flags.setdefault(name, literal(value))
        elif found := _STATES.search(line):
            if self.slots is None:
                self.slots = int(found[1])
                self.state_bytes = _logged_bytes(found[2], found[3])
        elif found := _KV.search(line):
            if self.kv_bytes is None:
                self.kv_bytes = _logged_bytes(found[1] or "0", found[2])
        elif found := _RESERVE.search(line):
            self.reserve = int(found[1])
        elif found := _READY.search(line):
            self.ready.append((int(found[1]), int(found[2]), int(found[3])))

    def pools(self, source: str) -> ObservedPools:
        """What was read, once ``needed`` is None."""
        tokens, running, context = (min(values) for values in zip(*self.ready, strict=True))
        if self._skips_decode_lock():
            self.flags[SKIP_DECODE_LOCK] = True
        return ObservedPools(
            engine="sglang",
            version=None,
            source=source,
            ranks=max(1, len(self.ready) // (_count(self.flags.get("pp_size")) or 1)),
            state_slots=self.slots,
            kv_tokens=tokens,
            max_running_requests=running,
            page_size=_count(self.flags.get("page_size")),
            kv_pool_bytes=self.kv_bytes,
            state_pool_bytes=self.state_bytes,
            rounding_bytes=GIB // 100,  # two numbers of two decimals each
            max_context=context,
            flags=self.flags,
            origins={
                "state_slots": "the line 'Mamba Cache is allocated'",
                "state_pool_bytes": "the line 'Mamba Cache is allocated'",
                "kv_tokens": "the line 'max_total_num_tokens='",
                "max_running_requests": "the line 'max_total_num_tokens='",
                "max_context": "the line 'max_total_num_tokens='",
                "kv_pool_bytes": "the line 'KV Cache is allocated'",
                "page_size": "the line 'server_args='",
            },
        )

    def _skips_decode_lock(self) -> bool:
        """Whether S is the one that the flags give with the variable set, and not the one without."""
        names = ("mamba_radix_cache_strategy", "disable_overlap_schedule", "disable_radix_cache", "pp_size")
        given: dict[str, Any] = {name: self.flags[name] for name in names if name in self.flags}
        if self.reserve is None:
            return False
        try:
            locked, skipped = (
                slots_per_request(SglangFlags(**given, skip_decode_lock=skip)) for skip in (False, True)
            )
        except InputError:
            return False
        return locked != self.reserve == skipped


def _logged_bytes(*gib: str) -> int | None:
    try:
        return _gib(sum(float(number) for number in gib))
    except ValueError:  # "1.2.3"
        return None
