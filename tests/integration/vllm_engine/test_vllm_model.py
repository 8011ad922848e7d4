"""The vLLM adapter with a real, tiny hybrid model: the same tokens as under FCFS, and less to compute."""

import json
from pathlib import Path

import pytest
from integration.engines.loaded import run_loaded
from integration.vllm_engine.environment import HERE, VLLM

pytestmark = pytest.mark.vllm


def test_replies_are_those_of_fcfs_and_more_of_the_prompts_is_cached(
    tmp_path: Path,
) -> None:
    done = run_loaded(VLLM, HERE / "model_run.py", tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    fcfs, *ours = (json.loads(line) for line in done.stdout.splitlines())
    assert fcfs["class"] == "Scheduler"
    assert [each["class"] for each in ours] == ["RoutingPrefixScheduler", "RoutingResidencyScheduler"]
    for each in ours:
        assert each["contexts"] == fcfs["contexts"]
        assert each["prompt"] == fcfs["prompt"]
        assert 2 * (each["prompt"] - each["cached"]) <= fcfs["prompt"] - fcfs["cached"]
    replies = {tuple(context[-6:]) for context in fcfs["contexts"]}
    assert len(replies) > 4  # else what is cached could not be seen in them
