"""`coresched simulate --worker vllm`: vLLM's real engine cores in lockstep, and their block pools."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.vllm_engine.environment import OFFLINE
from unit.capacity.model_configs import CONFIGS, write_config

from bench.sglang_policies.setups import SHORT_QUEUE
from coresched import footprint
from coresched.capacity.vllm import trajectory_blocks, usable_blocks
from coresched.trajectory.writer import write_trajectories

pytestmark = [pytest.mark.vllm, pytest.mark.by_hand]

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[2]
GIB = 1 << 30
POOL_BYTES = int(80 * GIB * 0.92) - 60 * GIB
"""Of 80 GiB with 60 GiB of weights, at vLLM's default of --gpu-memory-utilization."""

POOLS = [
    ("Qwen3-Next-80B-A3B", 1, []),
    ("Qwen3-Next-80B-A3B", 2, ["--no-async-scheduling"]),
    ("Nemotron-Nano-9B-v2", 1, []),
    ("Qwen3-32B", 4, []),
]
REFUSALS = [
    (["--no-such-flag"], [], "vLLM's flags, behind --: unrecognized arguments: --no-such-flag"),
    (["--max-num-seqs", "many"], [], "vLLM's flags, behind --: argument --max-num-seqs"),
    (["--model", "x"], [], "--model is given to vllm; give the model as --model-config instead"),
    (["--pipeline-parallel-size", "2"], [], "--pipeline-parallel-size is 2; pipeline stages"),
    (["--scheduling-policy", "priority"], ["routing-prefix"], "leave --scheduling-policy out; or leave out"),
    (
        ["--gpu-memory-utilization", "0.5"],
        [],
        "--weights is 60 GiB; --gpu-memory-utilization 0.5 of --memory",
    ),
    (
        ["--max-model-len", "32768", "--kv-cache-memory-bytes", "64M"],
        [],
        "vLLM refuses this: To serve at least",
    ),
]


def environment(**more: str) -> dict[str, str]:
    return os.environ | OFFLINE | {"PYTHONPATH": str(CHECKOUT)} | more


@pytest.fixture(scope="module")
def facts(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("fleet")

    def model(name: str, **other: Any) -> str:
        place = folder / "-".join([name, *other])
        place.mkdir(exist_ok=True)
        return str(write_config(place, CONFIGS[name] | other).parent)

    short, dense = ["--max-model-len", "32768"], model("Qwen3-32B", num_hidden_layers=4)
    asked = {
        "pools": [[model(name), [*short, "-tp", str(tp), *flags]] for name, tp, flags in POOLS],
        "refusals": [[dense, flags, policies] for flags, policies, _ in REFUSALS]
        + [[unknown_model(folder), [], []]],
        "without pressure": [[dense, [*short, *flags]] for flags in ([], ["--no-async-scheduling"])],
    }
    (folder / "asked.json").write_text(json.dumps(asked))
    done = subprocess.run(
        [vllm_python, HERE / "fleet_facts.py", folder / "asked.json"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def unknown_model(folder: Path) -> str:
    (folder / "unknown").mkdir()
    (folder / "unknown" / "config.json").write_text(
        json.dumps({"architectures": ["NoSuchForCausalLM"], "model_type": "no_such"})
    )
    return str(folder / "unknown")


def test_block_pools_are_those_of_the_closed_forms(facts: dict[str, Any], tmp_path: Path) -> None:
    for (name, tp, flags), ready in zip(POOLS, facts["pools"], strict=True):
        (tmp_path / f"{name}-{tp}").mkdir()
        layout = footprint(write_config(tmp_path / f"{name}-{tp}", CONFIGS[name]), "vllm", tp).layout
        assert layout is not None
        blocks = usable_blocks(layout, POOL_BYTES)
        assert ready["page_size"] == layout.block_tokens, name
        assert ready["kv_tokens"] == blocks * layout.block_tokens // layout.attention_groups, name
        assert ready["overlap"] == (not flags)
        if layout.state_groups:
            assert ready["state_slots"] == blocks // layout.state_groups, name
            assert ready["state_slot_tokens"] == pytest.approx(layout.state_bytes / layout.kv_bytes), name
            running = trajectory_blocks(layout, 0, running=True)
            assert ready["slots_per_request"] * layout.state_groups == running, name
        else:
            assert ready["state_slots"] is None


def test_what_vllm_refuses_is_one_line_in_its_words(facts: dict[str, Any]) -> None:
    *found, unknown = facts["refusals"]
    for (flags, _, said), line in zip(REFUSALS, found, strict=True):
        assert said in line, flags
        assert "\n" not in line
    assert unknown.startswith(
        "vLLM refuses this: The checkpoint you are trying to load has model type `no_such`"
    )
    assert "\n" not in unknown


def test_without_pressure_vllm_is_near_the_simulators_worker_and_repeats_itself(
    facts: dict[str, Any],
) -> None:
    for run in facts["without pressure"]:
        first, again, built_in = run["metrics"]
        assert first == again
        assert run["turns"][0] == run["turns"][1]
        assert run["turns"][0]["retractions"] == run["turns"][0]["recomputed_tokens"] == 0
        assert first["input_tokens"] == built_in["input_tokens"]
        assert first["output_tokens"] == built_in["output_tokens"]
        assert first["cache_reuse"] == pytest.approx(built_in["cache_reuse"], abs=0.02)
        assert first["makespan_s"] == pytest.approx(built_in["makespan_s"], rel=0.1)
        assert first["makespan_s"] >= run["bounds"][0]
    overlapped, one_by_one = (run["metrics"][0]["makespan_s"] for run in facts["without pressure"])
    assert overlapped != one_by_one


def test_the_ladder_runs_on_real_engines(vllm_python: Path, tmp_path: Path) -> None:
    batch = replace(
        SHORT_QUEUE, samples=24, turns=4, initial_prompt_tokens=2_000, output_tokens=16, response_tokens=600
    ).trajectories(0)
    write_trajectories(tmp_path / "traces.jsonl", batch)
    config = CONFIGS["Qwen3-Next-80B-A3B"] | {"num_hidden_layers": 8}
    (tmp_path / "model").mkdir()
    model = write_config(tmp_path / "model", config).parent
    command = (
        *(vllm_python, "-m", "coresched", "simulate", "traces.jsonl", "--worker", "vllm", "--json"),
        *("--runs", "lbch,routing-prefix", "--model-config", model, "--memory", "80GiB"),
        # More trajectories at once than two workers hold.
        *("--weights", "50GiB", "--sample-concurrency", "20", "--label-capacity", "12"),
        *("--", "--max-model-len", "16384", "--max-num-seqs", "4", "--kv-cache-memory-bytes", "190M"),
    )
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    fcfs, ours = json.loads(done.stdout)["runs"]
    for run in (fcfs, ours):
        assert run["input_tokens"] == sum(sum(each.prompt_tokens()) for each in batch)
        assert run["output_tokens"] == sum(turn.output_tokens for each in batch for turn in each.turns)
        assert run["later_turns"] == sum(len(each.turns) for each in batch) - len(batch)
        assert run["makespan_s"] >= run["lower_bound_s"]
        assert run["settings"]["state_ratio"] is None
    assert ours["cache_reuse"] > fcfs["cache_reuse"]
    assert ours["later_turns_without_hit"] < fcfs["later_turns_without_hit"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "traces.jsonl"]
