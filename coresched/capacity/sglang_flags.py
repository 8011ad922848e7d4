"""The SGLang flags that decide its pool sizes, and the state slots a request reserves and holds."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from coresched.core.checks import check_count, check_positive
from coresched.errors import InputError

Strategy = Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"]
STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)

LARGEST_RATIO: Final = 1e9
"""Far above any sensible ratio, and low enough that memory times ratio stays a finite double."""

TRACK_INTERVAL: Final = 256
"""The engine's default of --mamba-track-interval."""

SPECULATIVE_MAX_RUNNING: Final = 48
"""What the engine takes for --max-running-requests when speculation is on and nothing is given."""


def checked_count(value: object, name: str, minimum: int = 1) -> int:
    """The int from ``minimum`` to 2**63 - 1. Raises InputError naming the field and the value."""
    try:
        return check_count(value, name, minimum)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from None


def checked_positive(value: object, name: str, largest: float) -> float:
    """The int or float above 0 and up to ``largest``. Raises InputError naming the field and the value."""
    try:
        number = check_positive(value, name)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from None
    if number > largest:
        raise InputError(f"{name} must be at most {largest:g}, got {number!r}")
    return number


@dataclass(frozen=True)
class SglangFlags:
    """The launch flags of one SGLang 0.5.23 engine that its pool sizes depend on, under the engine's names.

    ``mamba_radix_cache_strategy`` is what the engine's "auto" resolves to: "extra_buffer" for models that
    support it with overlap scheduling or pages above 1, else "no_buffer". ``skip_decode_lock`` is the
    environment variable SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=1. ``speculative_num_draft_tokens`` None means no
    speculation; ReplaySSM, unified memory and int8 checkpoints are not covered. ``max_mamba_cache_size`` and
    ``max_running_requests`` are of the whole engine, which divides them by ``attn_dp_size``. ``pp_size``
    above 1 turns overlap scheduling off, as the engine does. ``context_length`` (tokens; the model's own when
    the flag is not given) is needed only when ``max_running_requests`` is not set. ``mamba_track_interval``
    is how many tokens of a reply lie between two saved states.
    Raises InputError naming the field, the value and the fix.
    """

    context_length: int | None = None
    page_size: int = 1
    mamba_full_memory_ratio: float = 0.9
    max_mamba_cache_size: int | None = None
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    mamba_radix_cache_strategy: Strategy = "extra_buffer"
    mamba_track_interval: int = TRACK_INTERVAL
    disable_overlap_schedule: bool = False
    disable_radix_cache: bool = False
    skip_decode_lock: bool = False
    speculative_num_draft_tokens: int | None = None
    attn_dp_size: int = 1
    pp_size: int = 1
    dcp_size: int = 1

    def __post_init__(self) -> None:
        for name in ("page_size", "mamba_track_interval", "attn_dp_size", "pp_size", "dcp_size"):
            checked_count(getattr(self, name), name)
        for name in (
            "context_length",
            "max_mamba_cache_size",
            "max_running_requests",
            "max_total_tokens",
            "speculative_num_draft_tokens",
        ):
            if getattr(self, name) is not None:
                checked_count(getattr(self, name), name)
        checked_positive(self.mamba_full_memory_ratio, "mamba_full_memory_ratio", LARGEST_RATIO)
        for name in ("disable_overlap_schedule", "disable_radix_cache", "skip_decode_lock"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InputError(f"{name} must be True or False, got a value of type {type(value).__name__}")
        self._check_strategy()

    def _check_strategy(self) -> None:
        strategy = self.mamba_radix_cache_strategy
        if strategy not in STRATEGIES:
            found = repr(strategy)[:60] if isinstance(strategy, str) else type(strategy).__name__
            raise InputError(
                f"mamba_radix_cache_strategy is {found}; it must be one of {', '.join(STRATEGIES)}"
            )
        if self.disable_radix_cache:
            return
        if strategy == "no_buffer" and self.page_size > 1:
            raise InputError(
                f"page_size is {self.page_size}; the engine starts with no_buffer only at page_size 1, "
                "so set that or use extra_buffer"
            )
        if strategy == "no_buffer" and self.overlap:
            raise InputError(
                "disable_overlap_schedule is False; the engine starts with no_buffer only when it is True, "
                "so set it or use extra_buffer"
            )
        if strategy == "extra_buffer_lazy" and not self.overlap:
            setting = f"pp_size is {self.pp_size}" if self.pp_size > 1 else "disable_overlap_schedule is True"
            raise InputError(
                f"{setting}, so scheduling does not overlap, which extra_buffer_lazy needs; use extra_buffer"
            )

    @property
    def overlap(self) -> bool:
        """Whether scheduling overlaps the forward pass; pipeline parallelism turns it off."""
        return not self.disable_overlap_schedule and self.pp_size == 1

    @property
    def draft_tokens(self) -> int:
        """D: draft tokens of one verification step, 0 without speculation."""
        return self.speculative_num_draft_tokens or 0

    @property
    def requested_running_requests(self) -> int | None:
        """Running requests asked of one attention-DP rank; None leaves it to the engine's estimate."""
        requested = self.max_running_requests
        if requested is None and self.draft_tokens:
            requested = SPECULATIVE_MAX_RUNNING
        return None if requested is None else max(1, requested // self.attn_dp_size)

    def command_line(self, *, hybrid: bool) -> tuple[str, ...]:
        """The flags as arguments of the engine's launch command.

        A dense model (``hybrid`` False) has no state pool, and the engine refuses some of its flags there.
        """
        arguments = ["--page-size", str(self.page_size)]
        if hybrid and self.max_mamba_cache_size is None:
            arguments += ["--mamba-full-memory-ratio", repr(self.mamba_full_memory_ratio)]
        if hybrid and not self.disable_radix_cache:
            arguments += ["--mamba-radix-cache-strategy", self.mamba_radix_cache_strategy]
            if self.mamba_track_interval != TRACK_INTERVAL:
                arguments += ["--mamba-track-interval", str(self.mamba_track_interval)]
        optional = [
            "max_running_requests",
            "max_total_tokens",
            "context_length",
            "speculative_num_draft_tokens",
        ]
        for name in ["max_mamba_cache_size", *optional] if hybrid else optional:
            if getattr(self, name) is not None:
                arguments += [_option(name), str(getattr(self, name))]
        for name in ("disable_overlap_schedule", "disable_radix_cache"):
            if getattr(self, name):
                arguments.append(_option(name))
        for name in ("attn_dp_size", "pp_size", "dcp_size"):
            if getattr(self, name) > 1:
                arguments += [_option(name), str(getattr(self, name))]
        return tuple(arguments)

    def environment(self) -> dict[str, str]:
        """The environment variables that go with ``command_line``."""
        return {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "1"} if self.skip_decode_lock else {}


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class HeldSlots:
    """State slots really in use, as opposed to reserved: of a running request, and of an idle trajectory.

    ``active`` is the state being written, ``tracking`` the buffers that checkpoints are taken into,
    ``locked`` the cached state of the request's prefix, which cannot be evicted while it runs. ``retained``
    is what a trajectory holds while it waits on its environment: at least its last state, and, forks aside,
    no more under --mamba-max-states-per-path 1 (by default earlier states stay until they are evicted).
    """

    active: int
    tracking: int
    locked: int
    retained: int

    @property
    def running(self) -> int:
        """Slots of one running request that has a cached prefix."""
        return self.active + self.tracking + self.locked


def _tracking_slots(flags: SglangFlags) -> int:
    if flags.mamba_radix_cache_strategy == "no_buffer":
        return 0
    return 2 if flags.mamba_radix_cache_strategy == "extra_buffer" and flags.overlap else 1


def slots_per_request(flags: SglangFlags) -> int:
    """S: state slots the engine reserves per running request (SGLang 0.5.23, ``_calculate_mamba_ratio``).

    3 and one per tracking buffer (2 with extra_buffer and overlap, 1 without overlap or with the lazy
    variant); one fewer with ``skip_decode_lock``, except for no_buffer; 1 when the radix cache is off.
    """
    if flags.disable_radix_cache:
        return 1
    if flags.mamba_radix_cache_strategy == "no_buffer":
        return 3
    return (2 if flags.skip_decode_lock else 3) + _tracking_slots(flags)


def held_slots(flags: SglangFlags) -> HeldSlots:
    """Slots in use under these flags. A running request leaves S minus ``running`` of its reserve unused."""
    if flags.disable_radix_cache:
        return HeldSlots(active=1, tracking=0, locked=0, retained=0)
    return HeldSlots(
        active=1,
        tracking=_tracking_slots(flags),
        locked=0 if flags.skip_decode_lock else 1,
        retained=1,
    )
