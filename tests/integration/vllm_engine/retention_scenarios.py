"""One state per trajectory and routing-residency in vLLM's real scheduler, for scheduler_scenarios.py."""

from dataclasses import replace
from typing import Any

from coresched_vllm.virtual.batch import Batch, run_batch
from coresched_vllm.virtual.boot import Settings
from scenario_engines import (
    BATCH,
    DENSE,
    HYBRID,
    ROUTING_PREFIX,
    ROUTING_RESIDENCY,
    Facts,
    engine_of,
    facts_of,
)

TURNS = replace(BATCH, prompt=250)
"""Prompts end within a block, as nearly all do; vLLM 0.29 to 0.31 keeps no state of one that fills it."""
CONTEXT, OUTPUT = 1_148, 8
"""Tokens of a trajectory at its end, 8 blocks of 128 and some; and of a reply."""


def working_set() -> Facts:
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
            row[name] = most_reused(with_retention(settings, retained), scheduler)
        facts[f"{blocks} blocks of {block_size}, {groups} groups of states"] = row
    return facts


def with_retention(settings: Settings, retained: bool) -> Settings:
    section = {**settings.additional_config.get("coresched", {}), "one_state_per_trajectory": retained}
    return replace(settings, additional_config={"coresched": section})


def most_reused(settings: Settings, scheduler: Any) -> int:
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


def policies(settings: Settings, batch: Batch) -> Facts:
    """One batch under vLLM's own order and ours, with and without the retention."""
    from retention_only import RetentionOnly

    facts = {}
    for name, scheduler, retained in (
        ("fcfs", None, False),
        ("fcfs, one state", RetentionOnly, True),
        ("rp, two states", ROUTING_PREFIX, False),
        ("rp", ROUTING_PREFIX, True),
        ("residency, two states", ROUTING_RESIDENCY, False),
        ("residency", ROUTING_RESIDENCY, True),
    ):
        engine = engine_of(with_retention(settings, retained), scheduler)
        facts[name] = facts_of(engine, run_batch(engine, batch))
    return facts


def logged_order(settings: Settings, batch: Batch) -> Facts:
    """The log of a run with the cache emptied, and its running requests preempted, once in its middle."""
    from step_log import logged

    engine = engine_of(settings, ROUTING_RESIDENCY)
    steps = logged(engine)
    step = engine.step

    def step_with_reset() -> Any:
        if len(steps) == 120:
            steps[-1]["emptied"] = engine.scheduler.reset_prefix_cache(reset_running_requests=True)
        return step()

    engine.step = step_with_reset  # type: ignore[method-assign]
    facts = facts_of(engine, run_batch(engine, batch))
    return {**facts, "steps": steps, "block size": settings.block_size, "states": settings.state_groups > 0}


def residency_under_pressure() -> Facts:
    return policies(HYBRID, TURNS)


def residency_of_dense() -> Facts:
    return policies(DENSE, TURNS)


def residency_without_pressure() -> Facts:
    return policies(replace(HYBRID, blocks=900), TURNS)


def residency_with_long_stages() -> Facts:
    """More trajectories than the pool holds are in environment stages."""
    settings = replace(HYBRID, blocks=240, additional_config={"coresched": {"label_capacity": 20}})
    batch = replace(TURNS, trajectories=40, environment_steps=20)
    return policies(settings, batch)


def residency_asynchronous() -> Facts:
    return policies(replace(HYBRID, async_scheduling=True), TURNS)


def residency_in_a_storm() -> Facts:
    """Replies so long that the running requests push each other out."""
    storm = replace(TURNS, trajectories=12, turns=3, output=96)
    return policies(replace(HYBRID, blocks=52), storm)


def residency_order() -> Facts:
    """The log of a run under pressure, with preemptions, and a reset in the middle."""
    return logged_order(replace(HYBRID, blocks=120), replace(TURNS, trajectories=14, output=40))


def residency_order_of_dense() -> Facts:
    return logged_order(replace(DENSE, blocks=90), replace(TURNS, trajectories=14, output=40))
