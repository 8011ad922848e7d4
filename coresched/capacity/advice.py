"""What a person should know about a plan before using it."""

from dataclasses import replace

from coresched.capacity.estimate import estimate_peak
from coresched.capacity.footprint import footprint
from coresched.capacity.plan import Plan
from coresched.capacity.profile import WorkloadProfile
from coresched.capacity.sglang import slots_per_request, solve_pools
from coresched.capacity.workers import EngineWorker, SglangWorker, VllmWorker
from coresched.errors import InputError

FEW_SAMPLES = 30
WIDE_RANGE = 0.2
NEVER_HIT_SHARE = 0.05
DEFAULT_RATIO_LOSS = 0.1


def warnings_of(plan: Plan, profile: WorkloadProfile, worker: EngineWorker) -> Plan:
    """The plan with its warnings, a sentence each."""
    found = [
        *plan.footprint.notes,
        *_running_below(plan),
        *_default_ratio(plan, worker),
        *_state_dtype(plan, profile, worker),
        *_short_prefixes(profile, worker),
        *_thin_profile(plan),
        *_environment(plan),
        *_other_estimator(plan),
    ]
    return replace(plan, warnings=tuple(found))


def _running_below(plan: Plan) -> list[str]:
    running = plan.pools.max_running_requests
    if plan.estimator == "peak" or running >= plan.concurrency:
        return []
    return [
        f"the engine will run {running} requests at once, below the {plan.concurrency} trajectories "
        f"planned for; "
        "the others wait in its queue"
    ]


def _default_ratio(plan: Plan, worker: EngineWorker) -> list[str]:
    """What the engine's default split would hold of the mean trajectory, beside the plan."""
    if not isinstance(worker, SglangWorker) or not worker.reserve:
        return []
    flags = replace(worker.flags, max_running_requests=plan.samples)
    try:
        pools = solve_pools(
            flags, worker.memory_bytes, worker.footprint.kv_bytes, worker.footprint.state_bytes
        )
    except InputError as error:
        return [
            f"under its default ratio {flags.mamba_full_memory_ratio:g} the engine would not start: {error}"
        ]
    kv = pools.kv_tokens * worker.footprint.kv_bytes
    by_slots = pools.state_slots // slots_per_request(worker.flags)
    if plan.kv_demand_bytes <= kv * (1 + DEFAULT_RATIO_LOSS) and by_slots >= plan.peak_concurrency:
        return []
    starved = "KV" if plan.kv_demand_bytes > kv else "state slots"
    return [
        f"the engine's default ratio {flags.mamba_full_memory_ratio:g} starves {starved}: it makes "
        f"{pools.kv_tokens:,} KV tokens and {pools.state_slots:,} state slots of the same memory, so "
        f"pass the flags"
    ]


def _state_dtype(plan: Plan, profile: WorkloadProfile, worker: EngineWorker) -> list[str]:
    size = plan.footprint
    if not size.state_bytes or size.state_dtype != "float32":
        return []
    try:
        half = footprint(
            size.model,
            size.engine,
            size.tp,
            pp=size.pp,
            attention_dp=size.attention_dp,
            dcp=size.dcp,
            draft_tokens=size.draft_tokens,
            state_dtype="bfloat16",
        )
    except InputError:
        return []
    smaller = estimate_peak(profile, worker.with_footprint(half), plan.margin, guess=plan.peak_concurrency)
    if smaller is None or smaller.concurrency <= plan.peak_concurrency:
        return []
    return [
        f"states are float32; in bfloat16 they take {half.state_bytes:,} instead of "
        f"{size.state_bytes:,} bytes a "
        f"slot and {smaller.concurrency} trajectories fit instead of {plan.peak_concurrency}, if the model's "
        "quality allows it"
    ]


def _short_prefixes(profile: WorkloadProfile, worker: EngineWorker) -> list[str]:
    if not isinstance(worker, VllmWorker):
        return []
    shortest = worker.layout.shortest_hit_tokens
    if shortest is None:
        return ["the model has no attention layer: vLLM finds no prefix of it again"]
    turns = [stage for chain in profile.chains for stage in chain.stages[:-1]]
    short = sum(stage.tokens < shortest for stage in turns)
    if not turns or short <= NEVER_HIT_SHARE * len(turns):
        return []
    return [
        f"{short / len(turns):.0%} of the turns leave a context shorter than a block of {shortest} "
        f"tokens, which "
        "the next turn can never find in vLLM's cache"
    ]


def _thin_profile(plan: Plan) -> list[str]:
    low, high = plan.peak_range
    if plan.limit == "batch":
        return [
            f"all {plan.samples} trajectories of the workload fit at once, so the flags are sized for "
            f"them; a larger "
            "batch could run more"
        ]
    if plan.samples < FEW_SAMPLES:
        return [f"the workload has only {plan.samples} trajectories; give more for a plan to rely on"]
    if high - low > WIDE_RANGE * plan.peak_concurrency:
        return [f"the workload pins the concurrency down only to {low} - {high}; give more trajectories"]
    return []


def _environment(plan: Plan) -> list[str]:
    unified = plan.unified_concurrency
    if unified is None or unified >= plan.reference_concurrency:
        return []
    return [
        f"one limit for samples and environments would admit {unified}; admit "
        f"{plan.reference_concurrency} samples "
        "and cap environment jobs apart"
    ]


def _other_estimator(plan: Plan) -> list[str]:
    if plan.estimator == "peak" or plan.concurrency <= plan.peak_concurrency:
        return []
    return [
        f"estimator {plan.estimator} admits {plan.concurrency} trajectories a worker, but the "
        f"replayed peak of "
        f"{plan.peak_concurrency} already fills the pools: expect caches to be lost"
    ]
