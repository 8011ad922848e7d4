"""From a model, a workload and memory to a plan."""

from collections.abc import Iterable
from math import floor, isfinite
from pathlib import Path
from typing import get_args

from coresched.capacity.advice import warnings_of
from coresched.capacity.balance import PoolBalance
from coresched.capacity.demand import Demand
from coresched.capacity.engines import NO_EXTRA_BUFFER
from coresched.capacity.estimate import (
    DEFAULT_MARGIN,
    RESAMPLES,
    Estimator,
    Limit,
    estimate_kappa,
    estimate_paper,
    estimate_peak,
    peak_range,
    worst_demand,
)
from coresched.capacity.footprint import Footprint, footprint
from coresched.capacity.labels import label_capacity
from coresched.capacity.plan import Alternative, Plan, TrajectoryCost
from coresched.capacity.profile import WorkloadProfile, profile_of
from coresched.capacity.realise import deployment_flags, realise_demand, realise_ratio
from coresched.capacity.sglang import SglangFlags
from coresched.capacity.sizes import memory_bytes, size_text
from coresched.capacity.summary import WorkloadSummary
from coresched.capacity.workers import EngineWorker, SglangWorker, VllmWorker
from coresched.errors import InputError
from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.schema import Trajectory

LONGER_CONTEXTS = 1.1
MANY_TURNS = 50_000
DEFAULT_MEMORY_FRACTION = 0.9

SEES_IMAGES = "ForConditionalGeneration"
IMAGE_BYTES = 100 << 20
"""SGLANG_VLM_CACHE_SIZE_MB: of the pools' memory, for a model of such a class (kv_cache_configurator.py)."""

Workload = str | Path | Iterable[str | Path] | Iterable[Trajectory] | WorkloadSummary


def plan(
    model: str | Path,
    workload: Workload,
    engine: str = "sglang",
    *,
    pool_memory: int | str | None = None,
    gpu_memory: int | str | None = None,
    weights: int | str | None = None,
    memory_fraction: float | None = None,
    workers: int = 1,
    tp: int = 1,
    pp: int = 1,
    attention_dp: int = 1,
    dcp: int = 1,
    mtp: bool = False,
    draft_tokens: int = 0,
    kv_dtype: str | None = None,
    state_dtype: str | None = None,
    environment_concurrency: int | None = None,
    estimator: Estimator = "peak",
    margin: float = DEFAULT_MARGIN,
    page_size: int | None = None,
    context_length: int | None = None,
    pools_observed: bool = False,
    one_state_per_trajectory: bool = True,
) -> Plan:
    """Plan the cache pools and the sample concurrency of ``workers`` equal workers.

    ``model`` is a config.json (a path) or a catalogue name; ``workload`` trace files, trajectories, or a
    `WorkloadSummary`. Memory of the pools on one GPU is ``pool_memory``, or ``memory_fraction`` of
    ``gpu_memory`` less ``weights`` (both of one GPU); sizes are bytes or text such as "96GiB".
    ``page_size`` is SGLang's, 1 by default; vLLM's block follows from the model. ``memory_fraction`` is 0.9
    by default. ``context_length`` (tokens; the model's by default) is that of SGLang; vLLM's pools do not
    depend on it. ``pools_observed`` says that ``pool_memory`` is what an engine has, so that nothing is
    assumed of it. ``one_state_per_trajectory`` is of a scheduler of ours in vLLM; without it a waiting
    trajectory holds two states there.

    The default estimator ``peak`` takes the largest C whose replayed peak demand, raised by ``margin``, fits
    the engine's discrete pools; ``paper`` is floor(C(r_bal)) with L_kv the mean final context, ``kappa`` the
    same with the time-averaged active context. Raises InputError naming what cannot be used.
    """
    _check_options(estimator, margin, workers, environment_concurrency, context_length)
    memory, assumptions = pool_bytes(pool_memory, gpu_memory, weights, memory_fraction)
    size = footprint(
        model,
        engine,
        tp,
        pp=pp,
        attention_dp=attention_dp,
        dcp=dcp,
        mtp=mtp,
        draft_tokens=draft_tokens,
        kv_dtype=kv_dtype,
        state_dtype=state_dtype,
    )
    if not size.kv_bytes:
        raise InputError(f"model {size.model!r} has no attention layer, so there is no KV pool to plan")
    profile = _profile(workload)
    if not profile.timed:
        assumptions.append("without recorded times every admitted trajectory counts as running")
    if size.engine == "vllm" and page_size is not None:
        raise InputError(
            f"page_size is {page_size}; vLLM's block size follows from the model, so leave it out"
        )
    if size.engine == "sglang":
        if not one_state_per_trajectory:
            raise InputError(
                "one_state_per_trajectory is off; it is vLLM's, and SGLang gets "
                "--mamba-max-states-per-path 1, so leave it out"
            )
        if pool_memory is None and size.model_class.endswith(SEES_IMAGES):
            memory -= IMAGE_BYTES
            assumptions.append(f"SGLang keeps {size_text(IMAGE_BYTES)} of that for images")
        if not pools_observed:
            assumptions.append(
                f"SGLang leaves {size_text(memory)} a GPU to its pools: set --mem-fraction-static so, and "
                "check with coresched doctor"
            )
    worker = engine_worker(size, memory, page_size or 1, context_length, one_state_per_trajectory)
    cost = _cost(profile, size, worker)
    alternatives = _alternatives(profile, cost, memory)
    peak = estimate_peak(profile, worker, margin)
    if peak is None:
        raise _nothing_fits(profile, worker, memory, margin)
    concurrency, limit = peak.concurrency, peak.limit
    if estimator == "peak":
        realised = realise_demand(worker, peak.demand)
    else:
        found = next(each for each in alternatives if each.estimator == estimator)
        concurrency, limit = _within(found.concurrency, len(profile.chains))
        realised = realise_ratio(worker, found.ratio, concurrency)
    reference = min(workers * concurrency, len(profile.chains)) if limit == "batch" else workers * concurrency
    longer = estimate_peak(profile.scaled(LONGER_CONTEXTS), worker, margin, guess=peak.concurrency)
    draft = Plan(
        footprint=size,
        workers=workers,
        pool_bytes=memory,
        estimator=estimator,
        margin=margin,
        samples=len(profile.chains),
        cost=cost,
        kappa=profile.kappa,
        waiting_share=profile.waiting_share,
        concurrency=concurrency,
        reference_concurrency=reference,
        unified_concurrency=None
        if environment_concurrency is None
        else min(reference, environment_concurrency),
        label_capacity=label_capacity(concurrency, 1),
        ratio=realised.ratio,
        limit=limit,
        kv_demand_bytes=worker.kv_pool_bytes(peak.demand),
        state_demand_bytes=worker.state_pool_bytes(peak.demand),
        pools=realised.pools,
        engine_flags=(*deployment_flags(size, kv_dtype, state_dtype), *realised.engine_flags),
        engine_environment=realised.engine_environment,
        peak_range=peak_range(profile, worker, margin, guess=peak.concurrency, resamples=_resamples(profile)),
        peak_concurrency=peak.concurrency,
        peak_at_longer_contexts=0 if longer is None else longer.concurrency,
        alternatives=alternatives,
        assumptions=tuple(assumptions),
        warnings=(),
    )
    return warnings_of(draft, profile, worker)


def pool_bytes(
    pool_memory: int | str | None,
    gpu_memory: int | str | None,
    weights: int | str | None,
    memory_fraction: float | None = None,
) -> tuple[int, list[str]]:
    """Bytes of one GPU for both pools, and how they came about where they were not given outright."""
    if pool_memory is not None:
        for name, value in (
            ("gpu_memory", gpu_memory),
            ("weights", weights),
            ("memory_fraction", memory_fraction),
        ):
            if value is not None:
                raise InputError(
                    f"{name} is given beside pool_memory, which needs none; leave one of them out"
                )
        return memory_bytes(pool_memory, "pool_memory"), []
    if (gpu_memory is None) != (weights is None):
        missing = "weights" if weights is None else "gpu_memory"
        raise InputError(f"{missing} is not given; gpu_memory and weights make the pools' memory together")
    if gpu_memory is None or weights is None:
        raise InputError(
            "pool_memory is not given; give it, or gpu_memory and weights, or what a running engine says"
        )
    if memory_fraction is None:
        memory_fraction = DEFAULT_MEMORY_FRACTION
    if not (isinstance(memory_fraction, (int, float)) and 0 < memory_fraction <= 1):
        raise InputError(f"memory_fraction is {memory_fraction!r}; it must be above 0 and at most 1")
    whole, used = memory_bytes(gpu_memory, "gpu_memory"), memory_bytes(weights, "weights")
    rest = int(whole * memory_fraction) - used
    if rest <= 0:
        raise InputError(
            f"weights is {size_text(used)}; {memory_fraction:g} of gpu_memory {size_text(whole)} "
            f"leaves nothing "
            "for the pools; raise memory_fraction or tp"
        )
    note = f"pools get {memory_fraction:g} x {size_text(whole)} - {size_text(used)} = {size_text(rest)} a GPU"
    return rest, [f"{note}; activations and graphs must fit into the rest"]


def engine_worker(
    size: Footprint,
    memory: int,
    page_size: int,
    context_length: int | None = None,
    one_state_per_trajectory: bool = True,
) -> EngineWorker:
    """The planner's view of one worker of the footprint's engine.

    ``context_length`` is SGLang's, and the model's where it is None. ``one_state_per_trajectory`` is vLLM's.

    Raises InputError for a page size that SGLang refuses for this model.
    """
    if size.engine == "vllm":
        return VllmWorker(size, memory, size.draft_tokens, one_state_per_trajectory)
    unbuffered = size.model_class in NO_EXTRA_BUFFER
    if unbuffered and page_size > 1:
        raise InputError(f"page_size is {page_size}; SGLang serves {size.model_class} with page_size 1 only")
    flags = SglangFlags(
        context_length=context_length or size.max_context,
        page_size=page_size,
        mamba_radix_cache_strategy="no_buffer" if unbuffered else "extra_buffer",
        disable_overlap_schedule=unbuffered,
        speculative_num_draft_tokens=size.draft_tokens or None,
        attn_dp_size=size.attention_dp,
        pp_size=size.pp,
        dcp_size=size.dcp,
    )
    return SglangWorker(size, memory, flags)


def _check_options(
    estimator: str,
    margin: float,
    workers: int,
    environment_concurrency: int | None,
    context_length: int | None,
) -> None:
    if estimator not in get_args(Estimator):
        raise InputError(f"estimator is {estimator!r}; it must be one of {', '.join(get_args(Estimator))}")
    if not (isinstance(margin, (int, float)) and isfinite(margin) and 0 <= margin <= 1):
        raise InputError(f"margin is {margin!r}; it must be a number from 0 to 1")
    counts = {
        "workers": workers,
        "environment_concurrency": environment_concurrency,
        "context_length": context_length,
    }
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InputError(f"{name} is {value!r}; it must be an integer of at least 1")


def _profile(workload: Workload) -> WorkloadProfile:
    if isinstance(workload, WorkloadSummary):
        return workload.profile()
    if isinstance(workload, (str, Path)):
        return profile_of(load_trajectories([workload]))
    items = list(workload)
    trajectories = [item for item in items if isinstance(item, Trajectory)]
    paths = [item for item in items if isinstance(item, (str, Path))]
    if len(trajectories) + len(paths) != len(items) or (trajectories and paths):
        raise InputError("workload must be trace files, trajectories, or a WorkloadSummary")
    return profile_of(trajectories or load_trajectories(paths))


def _cost(profile: WorkloadProfile, size: Footprint, worker: EngineWorker) -> TrajectoryCost:
    footing = worker.footing
    one_unit = worker.state_pool_bytes(Demand(0, 2, 2, 0)) - worker.state_pool_bytes(Demand(0, 1, 1, 0))
    return TrajectoryCost(
        mean_final_tokens=profile.mean_final_tokens,
        kv_bytes=round(profile.mean_final_tokens * size.kv_bytes),
        running_state_bytes=footing.running_units * one_unit,
        idle_state_bytes=footing.idle_units * one_unit,
    )


def _alternatives(profile: WorkloadProfile, cost: TrajectoryCost, memory: int) -> tuple[Alternative, ...]:
    if not cost.running_state_bytes:  # one pool: C = M / F_kv, and no ratio
        return (
            Alternative("paper", 0.0, floor(memory / cost.kv_bytes)),
            Alternative("kappa", 0.0, floor(memory / (profile.kappa * cost.kv_bytes))),
        )
    balance = PoolBalance(memory, cost.kv_bytes, cost.running_state_bytes)
    return (
        Alternative("paper", *estimate_paper(balance)),
        Alternative("kappa", *estimate_kappa(balance, profile.kappa)),
    )


def _within(concurrency: int, samples: int) -> tuple[int, Limit]:
    if concurrency >= samples:
        return samples, "batch"
    return max(1, concurrency), "memory"


def _resamples(profile: WorkloadProfile) -> int:
    """Fewer for a large workload, which pins the estimate down better and takes longer to replay."""
    return RESAMPLES if sum(len(chain.stages) for chain in profile.chains) <= MANY_TURNS else 2


def _nothing_fits(profile: WorkloadProfile, worker: EngineWorker, memory: int, margin: float) -> InputError:
    one = worst_demand(profile, 1, worker.footing, margin)
    need = worker.kv_pool_bytes(one) + worker.state_pool_bytes(one)
    return InputError(
        f"pool_memory is {size_text(memory)} a GPU; the largest trajectory alone needs about "
        f"{size_text(need)} with the margin; give more memory or a larger tp"
    )
