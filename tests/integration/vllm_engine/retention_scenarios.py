"""One state per trajectory and routing-residency in vLLM's real scheduler, for scheduler_scenarios.py."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from coresched_vllm.virtual.batch import Batch, Outcome, run_batch
from coresched_vllm.virtual.boot import Settings
from coresched_vllm.virtual.engine import VirtualEngine

Facts = dict[str, Any]
EngineOf = Callable[..., VirtualEngine]

CONTEXT, OUTPUT = 1_148, 8
"""Tokens of a trajectory at its end, 8 blocks of 128 and some; and of a reply."""


def working_set(engine_of: EngineOf) -> Facts:
    """How many trajectories in turn find all of their last turn in the cache, searched for each pool."""
    from retention_only import RetentionOnly

    facts = {}
    for blocks, block_size, groups in ((200, 128, 3), (400, 128, 3), (200, 128, 1), (200, 64, 3)):
        settings = Settings(blocks, block_size=block_size, state_groups=groups, max_num_seqs=1)
        held = CONTEXT // block_size
        row: Facts = {"two states": (blocks - 1) // (held + 2 * groups)}
        row["one state"] = (blocks - 1) // (held + groups)
        for name, scheduler, retained in (
            ("vllm", None, False),
            ("off", RetentionOnly, False),
            ("on", RetentionOnly, True),
        ):
            row[name] = most_reused(engine_of, with_retention(settings, retained), scheduler)
        facts[f"{blocks} blocks of {block_size}, {groups} groups of states"] = row
    return facts


def with_retention(settings: Settings, retained: bool) -> Settings:
    section = {**settings.additional_config.get("coresched", {}), "one_state_per_trajectory": retained}
    return replace(settings, additional_config={"coresched": section})


def most_reused(engine_of: EngineOf, settings: Settings, scheduler: Any) -> int:
    """The most trajectories of which no turn computes what an earlier one has; one more loses some."""
    turns, growth = 6, settings.block_size
    prompt = CONTEXT - OUTPUT - (turns - 1) * growth
    batch = Batch(1, turns, prompt, growth - OUTPUT, OUTPUT, environment_steps=0)

    def recomputed(trajectories: int) -> int:
        engine = engine_of(settings, scheduler)
        return run_batch(engine, replace(batch, trajectories=trajectories)).recomputed_tokens

    least = recomputed(1)
    low, high = 1, settings.blocks // (CONTEXT // settings.block_size)
    while low < high:
        middle = (low + high + 1) // 2
        whole = recomputed(middle) == middle * least
        low, high = (middle, high) if whole else (low, middle - 1)
    return low


def residency_policies(engine_of: EngineOf, settings: Settings, batch: Batch) -> Facts:
    """One batch under vLLM's own order and ours, with and without the retention."""
    from retention_only import RetentionOnly

    facts = {}
    for name, scheduler, retained in (
        ("fcfs", None, False),
        ("fcfs, one state", RetentionOnly, True),
        ("rp, two states", "coresched_vllm.RoutingPrefix", False),
        ("rp", "coresched_vllm.RoutingPrefix", True),
        ("residency, two states", "coresched_vllm.RoutingResidency", False),
        ("residency", "coresched_vllm.RoutingResidency", True),
    ):
        engine = engine_of(with_retention(settings, retained), scheduler)
        facts[name] = facts_of(engine, run_batch(engine, batch))
    return facts


def facts_of(engine: VirtualEngine, outcome: Outcome) -> Facts:
    ordering = getattr(engine.scheduler, "ordering", None)
    return {
        "class": type(engine.scheduler).__name__,
        "steps": outcome.steps,
        "empty steps": outcome.empty_steps,
        "hit share": outcome.hit_share,
        "recomputed": outcome.recomputed_tokens,
        "preemptions": outcome.preemptions,
        "contexts": hashlib.sha256(str(outcome.contexts).encode()).hexdigest(),
        "counts": {} if ordering is None else asdict(ordering.counts()),
        "pool": pool_faults(engine),
    }


def pool_faults(engine: VirtualEngine) -> list[str]:
    """What is wrong with the block pool of an engine in which nothing runs."""
    pool = engine.scheduler.kv_cache_manager.block_pool
    free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    faults = []
    if len(free) != pool.get_num_free_blocks() or sorted(free) != list(range(1, len(pool.blocks))):
        faults.append("not each block is in the free queue once")
    if any(block.ref_cnt for block in pool.blocks[1:]):
        faults.append("a free block is in use")
    return faults


def order(engine_of: EngineOf, settings: Settings, batch: Batch) -> Facts:
    """The log of a run with the cache emptied, and its running requests preempted, once in its middle."""
    from step_log import logged

    engine = engine_of(settings, "coresched_vllm.RoutingResidency")
    steps = logged(engine)
    step = engine.step

    def step_with_reset() -> Any:
        if len(steps) == 120:
            steps[-1]["emptied"] = engine.scheduler.reset_prefix_cache(reset_running_requests=True)
        return step()

    engine.step = step_with_reset  # type: ignore[method-assign]
    facts = facts_of(engine, run_batch(engine, batch))
    return {**facts, "steps": steps, "block size": settings.block_size, "states": settings.state_groups > 0}
