"""Engine flags, and the pools that the engine makes of them, for a decided concurrency."""

from dataclasses import dataclass, replace

from coresched.capacity.demand import Demand
from coresched.capacity.footprint import Footprint
from coresched.capacity.plan import WorkerPools
from coresched.capacity.sglang import SglangFlags, SglangPools, ratio_of, solve_pools
from coresched.capacity.vllm import ONE_STATE_VARIABLE, engine_flags, sequence_limits
from coresched.capacity.workers import EngineWorker, SglangWorker, VllmWorker

# The plan counts one state slot for a waiting trajectory; by default the engine keeps more until evicted.
ONE_STATE = ("--mamba-max-states-per-path", "1")


@dataclass(frozen=True)
class Realised:
    """Pools of one worker under the flags. ``ratio`` is state memory over KV memory."""

    ratio: float
    pools: WorkerPools
    engine_flags: tuple[str, ...]
    engine_environment: dict[str, str]


def deployment_flags(size: Footprint, kv_dtype: str | None, state_dtype: str | None) -> tuple[str, ...]:
    """Parallelism and dtypes that the footprint was priced for, where they are not the engine's defaults.

    SGLang's pipeline, attention-DP and DCP sizes are among its pool flags.
    """
    if size.engine == "sglang":
        ranks: tuple[tuple[str, int], ...] = (("--tp-size", size.tp),)
        dtypes = (("--kv-cache-dtype", kv_dtype), ("--mamba-ssm-dtype", state_dtype))
    else:
        ranks = (
            ("--tensor-parallel-size", size.tp),
            ("--pipeline-parallel-size", size.pp),
            ("--decode-context-parallel-size", size.dcp),
        )
        dtypes = (("--kv-cache-dtype", kv_dtype), ("--mamba-ssm-cache-dtype", state_dtype))
    given = [(flag, str(count)) for flag, count in ranks if count > 1]
    given += [(flag, dtype) for flag, dtype in dtypes if dtype is not None]
    return tuple(word for pair in given for word in pair)


def realise_demand(worker: EngineWorker, demand: Demand) -> Realised:
    """Set the pools outright to what the replayed demand needs, which must fit."""
    if isinstance(worker, SglangWorker):
        fit = worker.fit(demand)
        hybrid = worker.footprint.state_bytes > 0
        ratio = 0.0
        if hybrid:
            slots = fit.pools.state_slots
            ratio = ratio_of(slots, fit.flags, worker.memory_bytes, worker.footprint.state_bytes)
        return Realised(
            ratio,
            _sglang_pools(worker, fit.pools),
            _sglang_flags(fit.flags, hybrid),
            fit.flags.environment(),
        )
    assert isinstance(worker, VllmWorker)
    return _vllm(worker, demand.running, demand.state_units / max(1, demand.kv_units))


def realise_ratio(worker: EngineWorker, ratio: float, concurrency: int) -> Realised:
    """Split the memory at a ratio, as the continuous estimators want it; vLLM has no split to set.

    Raises InputError where the engine would refuse the result.
    """
    if isinstance(worker, SglangWorker):
        hybrid = worker.footprint.state_bytes > 0
        flags = replace(worker.flags, max_running_requests=concurrency)
        if hybrid:
            flags = replace(flags, mamba_full_memory_ratio=ratio, max_mamba_cache_size=None)
        pools = solve_pools(
            flags, worker.memory_bytes, worker.footprint.kv_bytes, worker.footprint.state_bytes
        )
        return Realised(
            ratio, _sglang_pools(worker, pools), _sglang_flags(flags, hybrid), flags.environment()
        )
    assert isinstance(worker, VllmWorker)
    return _vllm(worker, concurrency, ratio)


def _sglang_flags(flags: SglangFlags, hybrid: bool) -> tuple[str, ...]:
    return (*flags.command_line(hybrid=hybrid), *(ONE_STATE if hybrid else ()))


def _sglang_pools(worker: SglangWorker, pools: SglangPools) -> WorkerPools:
    return WorkerPools(
        kv_tokens=pools.kv_tokens,
        state_slots=pools.state_slots,
        blocks=None,
        block_tokens=worker.flags.page_size,
        max_running_requests=pools.max_running_requests,
    )


def _vllm(worker: VllmWorker, running: int, ratio: float) -> Realised:
    limit = sequence_limits(worker.layout, worker.memory_bytes, worker.draft_tokens).run
    sequences = max(1, min(running, limit))
    pools = WorkerPools(
        kv_tokens=worker.blocks // worker.layout.attention_groups * worker.layout.block_span_tokens,
        state_slots=None,
        blocks=worker.blocks,
        block_tokens=worker.layout.block_span_tokens,
        max_running_requests=sequences,
    )
    one_state = worker.one_state_per_trajectory
    flags = engine_flags(
        worker.layout,
        running=sequences,
        memory_bytes=worker.memory_bytes,
        one_state_per_trajectory=one_state,
    )
    return Realised(ratio, pools, flags, {} if one_state else {ONE_STATE_VARIABLE: "0"})
