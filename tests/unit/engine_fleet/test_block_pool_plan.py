"""What the ladder plans for an engine with one block pool is what `coresched plan --engine vllm` says."""

from pathlib import Path

import pytest
from coresched_engine.fleet.deployment import worker_model
from coresched_engine.fleet.wire import Ready
from unit.capacity.model_configs import CONFIGS, write_config

from coresched import footprint, plan
from coresched.capacity.vllm import usable_blocks
from coresched.lab.ladder import Choices, Engine, mechanism_ladder
from coresched.lab.simulator.model import load_worker_model
from coresched.trajectory.generator import generate


@pytest.mark.parametrize(("name", "gib"), [("Qwen3-Next-80B-A3B", 6), ("Qwen3.5-27B", 30), ("Qwen3-32B", 40)])
def test_the_ladders_concurrency_is_the_plans(name: str, gib: int, tmp_path: Path) -> None:
    config, batch = write_config(tmp_path, CONFIGS[name]), list(generate("terminal", 60, 1))
    layout = footprint(config, "vllm").layout
    assert layout is not None
    blocks = usable_blocks(layout, gib << 30)
    ready = Ready(
        vocabulary=1,
        longest_prompt=1,
        longest_request=1,
        kv_tokens=blocks * layout.block_tokens // layout.attention_groups,
        state_slots=blocks // layout.state_groups if layout.state_groups else None,
        state_slot_tokens=layout.state_groups * layout.block_tokens / layout.attention_groups,
        slots_per_request=2,
        shared_pool=bool(layout.state_groups),
        max_running_requests=1024,
        page_size=layout.block_tokens,
        prefill_chunk_tokens=8192,
        overlap=True,
    )
    model = worker_model(ready, load_worker_model().times, name)
    rungs = mechanism_ladder(batch, model, Choices(workers=1), Engine("fcfs", "it has one pool"))
    planned = plan(config, batch, "vllm", pool_memory=gib << 30)
    assert 1 < planned.concurrency < len(batch)
    assert {rung.settings.sample_concurrency for rung in rungs} == {planned.concurrency}
    assert {rung.settings.label_capacity for rung in rungs} == {planned.label_capacity}
    assert "balanced-pools" not in {rung.settings.name for rung in rungs}


@pytest.mark.parametrize("name", ["Qwen3-Next-80B-A3B", "Qwen3.5-27B", "Qwen3-32B"])
def test_the_plans_label_capacity_is_above_its_running_limit(name: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, CONFIGS[name])
    for samples in (3, 60):
        planned = plan(config, list(generate("terminal", samples, 1)), "vllm", pool_memory="40GiB", workers=4)
        limit = planned.engine_flags[planned.engine_flags.index("--max-num-seqs") + 1]
        assert planned.label_capacity > int(limit)
