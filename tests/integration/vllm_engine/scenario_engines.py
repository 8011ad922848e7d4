"""What the scenarios of vLLM's real scheduler share: settings, engines, and what is told of a batch."""

import hashlib
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from coresched_vllm.virtual.batch import Batch, Outcome
from coresched_vllm.virtual.boot import Settings
from coresched_vllm.virtual.engine import VirtualEngine

Facts = dict[str, Any]

ROUTING_PREFIX = "coresched_vllm.RoutingPrefix"
ROUTING_RESIDENCY = "coresched_vllm.RoutingResidency"
BATCH = Batch(trajectories=20, turns=5, prompt=256, response=56, output=8)
HYBRID = Settings(blocks=150, additional_config={"coresched": {"label_capacity": 10}})
DENSE = replace(HYBRID, blocks=120, state_groups=0)


def engine_of(settings: Settings, scheduler_cls: Any = ROUTING_PREFIX) -> VirtualEngine:
    return VirtualEngine(Path(tempfile.mkdtemp()), replace(settings, scheduler_cls=scheduler_cls))


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
