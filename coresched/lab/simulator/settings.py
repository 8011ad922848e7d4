"""One simulated run's configuration, checked before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Final, Literal, get_args

from coresched.errors import InputError

WorkerPolicy = Literal[
    "fcfs", "lpm", "dfs-weight", "routing-prefix", "routing-residency", "routing-residency-unguarded"
]
PlainOrder = Literal["hrrn", "shortest-prefill-first", "routing-key", "plas", "peek", "program-fcfs"]
"""Orders of `orders`, each in plain Python alone."""
CompiledRouting = Literal["round-robin", "cache-aware", "consistent-hash", "lbch"]
"""Routers with a twin in plain Python."""
PlainRouting = Literal[
    "power-of-two",
    "least-loaded",
    "prefix-hash",
    "prefix-hash-strict",
    "bounded-ring",
    "sticky-least-loaded",
    "sticky-table",
    "dualmap",
    "preble",
    "autellix-locality",
    "sticky-bounded",
]
"""Routers of `routers`, each in plain Python alone."""
Routing = Literal[CompiledRouting, PlainRouting]
PlainEnvironment = Literal["sjf", "sjf-expected", "longest-remaining"]
"""Orders of `environments`, each in plain Python alone."""
EnvironmentPolicy = Literal["fcfs", "caas", PlainEnvironment]
PlainAdmission = Literal["prefix-groups", "pause-resume"]
"""Orders and gates of `admissions`, each in plain Python alone."""
AdmissionPolicy = Literal["submission", "longest-expected-first", PlainAdmission]
PlainEviction = Literal["lfu", "slru", "smallest-context", "marconi", "peek", "saga", "mori", "belady"]
"""Eviction policies of `evictions`, each in plain Python alone."""
EvictionPolicy = Literal["lru", PlainEviction]
PoolPolicy = Literal["static", "avmp"]

WORKER_POLICIES: Final[tuple[WorkerPolicy, ...]] = get_args(WorkerPolicy)
RESIDENCY_POLICIES: Final = ("routing-residency", "routing-residency-unguarded")
"""The worker policies that follow what the cache holds."""
ORDERS: Final[tuple[WorkerPolicy | PlainOrder, ...]] = (*WORKER_POLICIES, *get_args(PlainOrder))
"""Every worker policy of the simulator; `coresched worker` has fewer, see `LIVE_POLICIES`."""
COMPILED_ROUTERS: Final[tuple[CompiledRouting, ...]] = get_args(CompiledRouting)
ROUTERS: Final[tuple[Routing, ...]] = get_args(Routing)
LOAD_BOUNDED: Final = ("lbch", "prefix-hash", "prefix-hash-strict", "bounded-ring", "sticky-bounded")
"""The routers that ``load_bound`` is for."""
ENVIRONMENT_POLICIES: Final[tuple[EnvironmentPolicy, ...]] = get_args(EnvironmentPolicy)
ADMISSION_POLICIES: Final[tuple[AdmissionPolicy, ...]] = get_args(AdmissionPolicy)
EVICTION_POLICIES: Final[tuple[EvictionPolicy, ...]] = get_args(EvictionPolicy)
POOL_POLICIES: Final[tuple[PoolPolicy, ...]] = get_args(PoolPolicy)
ONLY_SIMULATED: Final = (*get_args(PlainEnvironment), *get_args(PlainAdmission))
"""Orders of environment jobs and of samples that no batch of coresched can have."""

MOST_WORKERS: Final = 1024
MOST: Final = 10**9
MOST_NOISE: Final = 10.0
LEAST: Final = 1e-9


@dataclass(frozen=True)
class CacheAwareRouting:
    """Thresholds of the cache-aware router, with the defaults of the SGLang router.

    A request follows its longest cached prefix when that exceeds ``cache_threshold`` of the prompt, else it
    goes to the worker with the smallest prefix tree; but when ``max - min > balance_abs_threshold`` and ``max
    > balance_rel_threshold * min`` requests are in flight, it goes to the least loaded worker.
    """

    cache_threshold: float = 0.3
    balance_abs_threshold: int = 64
    balance_rel_threshold: float = 1.5


@dataclass(frozen=True)
class RunSettings:
    """How one batch is scheduled.

    Counts are C_S (``sample_concurrency``), C_E (``environment_concurrency``, None for no cap), W
    (``workers``) and C_A (``label_capacity``); ``state_ratio`` is r, ``load_bound`` is alpha of LBCH and of
    the routers with a bound of that kind, ``band_s`` and ``bucket_s`` are B and D_I of CAAS.
    ``expectation_noise`` is for longest-expected-first, longest-remaining and prefix-groups: the sigma of the
    lognormal factor between a sample's length and what is expected of it, 0 for perfect knowledge. With
    ``release_finished`` the workers are told when a sample has finished, and drop what they hold of it;
    without, it is garbage until it is evicted. ``eviction_policy`` is which idle cache entry a worker gives
    up, ``pool_policy`` whether its two pools keep the sizes that r gives them. With ``returns_held`` above 1
    turns after a trajectory's first are held back until so many wait for their worker, or
    ``returns_held_s`` seconds have passed (`HeldReturns`). ``seed`` 0 keeps the submission order and the
    labels of the trace; any other seed shuffles the order and places the labels elsewhere on the hash ring.
    Raises InputError naming the field, the value and the fix.
    """

    name: str
    workers: int
    sample_concurrency: int
    environment_concurrency: int | None
    state_ratio: float
    label_capacity: int
    worker_policy: str = "fcfs"
    routing: Routing = "cache-aware"
    environment_policy: EnvironmentPolicy = "fcfs"
    admission_policy: AdmissionPolicy = "submission"
    expectation_noise: float = 0.0
    load_bound: float = 1.25
    band_s: float = 30.0
    bucket_s: float = 1.0
    cache_aware: CacheAwareRouting = CacheAwareRouting()
    release_finished: bool = False
    seed: int = 0
    eviction_policy: EvictionPolicy = "lru"
    pool_policy: PoolPolicy = "static"
    returns_held: int = 1
    returns_held_s: float = 1.0

    worker_policies: ClassVar[Sequence[str] | None] = ORDERS
    """What ``worker_policy`` may be; None: the workers themselves know."""
    eviction_policies: ClassVar[Sequence[str]] = EVICTION_POLICIES
    pool_policies: ClassVar[Sequence[str]] = POOL_POLICIES

    def __post_init__(self) -> None:
        self._require("workers", 1 <= self.workers <= MOST_WORKERS, f"from 1 to {MOST_WORKERS}")
        for field in ("sample_concurrency", "label_capacity", "environment_concurrency", "returns_held"):
            value = getattr(self, field)
            self._require(field, value is None or 1 <= value <= MOST, f"from 1 to {MOST}")
        for field in ("state_ratio", "band_s", "bucket_s", "returns_held_s"):
            value = getattr(self, field)
            self._require(field, LEAST <= value <= MOST, f"from {LEAST:g} to {MOST}")
        self._require(
            "expectation_noise", 0 <= self.expectation_noise <= MOST_NOISE, f"from 0 to {MOST_NOISE:g}"
        )
        self._require(
            "load_bound", isfinite(self.load_bound) and self.load_bound >= 1, "a finite number of at least 1"
        )
        for field, choices in (
            ("worker_policy", self.worker_policies),
            ("routing", ROUTERS),
            ("environment_policy", ENVIRONMENT_POLICIES),
            ("admission_policy", ADMISSION_POLICIES),
            ("eviction_policy", self.eviction_policies),
            ("pool_policy", self.pool_policies),
        ):
            if choices is not None:
                self._require(field, getattr(self, field) in choices, f"one of {', '.join(choices)}")

    def _require(self, field: str, holds: bool, wanted: str) -> None:
        if not holds:
            raise InputError(f"{field} is {getattr(self, field)!r}; it must be {wanted}")


class EngineSettings(RunSettings):
    """The same for workers that are engines; ``worker_policy`` is one of the engine's own names.

    Their eviction and their pools are the engine's as well.
    """

    worker_policies = None
    eviction_policies = ("lru",)
    pool_policies = ("static",)
