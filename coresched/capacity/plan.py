"""What a plan says, without how it was found."""

from dataclasses import dataclass

from coresched.capacity.estimate import Estimator, Limit
from coresched.capacity.footprint import Footprint


@dataclass(frozen=True)
class TrajectoryCost:
    """What one trajectory takes of a worker's pools, bytes on one rank."""

    mean_final_tokens: float
    """L_kv, mean KV tokens at the final turn."""
    kv_bytes: int
    """F_kv of the mean final context."""
    running_state_bytes: int
    """F_state, with every state slot that a running request reserves."""
    idle_state_bytes: int
    """What it keeps while its environment works."""


@dataclass(frozen=True)
class WorkerPools:
    """The pools of one worker (of one attention-DP rank) under the planned flags."""

    kv_tokens: int
    """Tokens the KV pool holds; on vLLM what the blocks hold when all are KV."""
    state_slots: int | None
    """K on SGLang, without the padding slot; None on vLLM, whose blocks hold both."""
    blocks: int | None
    """Usable blocks on vLLM; None on SGLang."""
    block_tokens: int
    """Page size of SGLang, block size of vLLM."""
    max_running_requests: int


@dataclass(frozen=True)
class Alternative:
    """Another estimator's answer on the same numbers."""

    estimator: Estimator
    ratio: float
    concurrency: int


@dataclass(frozen=True)
class Plan:
    """Pools, concurrency and flags for one workload on one deployment.

    ``concurrency`` is C of one worker, ``reference_concurrency`` C_I* of all, ``label_capacity`` C_A of
    routing-prefix scheduling on each of them. ``unified_concurrency`` is min(C_I*, C_E), what one shared
    limit would allow; None when the environment has no limit. ``ratio`` r is state memory over KV memory, for
    reporting.
    """

    footprint: Footprint
    workers: int
    pool_bytes: int
    estimator: Estimator
    margin: float
    samples: int
    cost: TrajectoryCost
    kappa: float
    waiting_share: float
    concurrency: int
    reference_concurrency: int
    unified_concurrency: int | None
    label_capacity: int
    ratio: float
    limit: Limit
    """What one more trajectory would run out of; "batch" when all fit at once."""
    kv_demand_bytes: int
    """Peak KV demand of the peak estimate, margin included, on one rank."""
    state_demand_bytes: int
    """The same for states."""
    pools: WorkerPools
    engine_flags: tuple[str, ...]
    engine_environment: dict[str, str]
    peak_concurrency: int
    """C of the peak estimate, whichever estimator was asked for."""
    peak_range: tuple[int, int]
    """Its smallest and largest value over resamples of the workload."""
    peak_at_longer_contexts: int
    """Its value if every context were 10 % longer."""
    alternatives: tuple[Alternative, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
