"""vLLM whole, with tiny models of three architectures: RP beside FCFS and longest prefix first."""

import json
from typing import Any

import pytest
from integration.engines.loaded import run_loaded
from integration.vllm_engine.environment import HERE, VLLM

from bench.vllm_policies.policies import FCFS, LPM, ROUTING_PREFIX, Policy
from bench.vllm_policies.processes import Run
from bench.vllm_policies.setups import TINY_LARGE_POOL, TINY_ONE_AT_A_TIME, TINY_SMALL_POOL
from bench.vllm_policies.tiny_models import TINY_MODELS

pytestmark = pytest.mark.vllm

ROUTING_RESIDENCY = Policy("routing-residency", "coresched_vllm.RoutingResidency")

Results = dict[Run, dict[str, Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    groups = [
        [
            *(Run(TINY_SMALL_POOL, model, policy) for policy in (FCFS, LPM, *policies_of(model))),
            *(Run(TINY_LARGE_POOL, model, policy) for policy in (FCFS, ROUTING_PREFIX)),
            *(Run(TINY_ONE_AT_A_TIME, model, policy) for policy in (FCFS, *policies_of(model))),
            Run(TINY_ONE_AT_A_TIME, model, FCFS, enable_prefix_caching=False),
        ]
        for model in TINY_MODELS
    ]
    jobs = tmp_path_factory.mktemp("jobs") / "jobs"
    jobs.write_text("".join(json.dumps([run.job() for run in group]) + "\n" for group in groups))
    done = run_loaded(VLLM, HERE / "tiny_model_runs.py", jobs)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all("result" in line for line in lines), (lines[-1], done.stderr[-4000:])
    runs = [run for group in groups for run in group]
    return {run: line["result"] for run, line in zip(runs, lines, strict=True)}


def policies_of(model: str) -> tuple[Policy, ...]:
    """Ours. One model is enough for routing-residency, whose decisions test_vllm_residency.py checks."""
    return (ROUTING_PREFIX, ROUTING_RESIDENCY) if model == "lfm2" else (ROUTING_PREFIX,)


@pytest.mark.parametrize("model", TINY_MODELS)
def test_under_pressure_at_most_half_is_computed_twice(results: Results, model: str) -> None:
    fcfs, lpm, rp = (results[Run(TINY_SMALL_POOL, model, policy)] for policy in (FCFS, LPM, ROUTING_PREFIX))
    assert 2 * rp["recomputed_tokens"] <= fcfs["recomputed_tokens"]
    assert rp["recomputed_tokens"] <= 1.5 * lpm["recomputed_tokens"]
    assert rp["hit_share"] > 2 * fcfs["hit_share"]
    assert rp["prefix_queries"] <= rp["later_turns"]
    assert lpm["prefix_queries"] > 5 * rp["prefix_queries"]


@pytest.mark.parametrize("model", TINY_MODELS)
def test_without_pressure_no_more_is_computed_than_under_fcfs(results: Results, model: str) -> None:
    fcfs, rp = (results[Run(TINY_LARGE_POOL, model, policy)] for policy in (FCFS, ROUTING_PREFIX))
    assert fcfs["later_turns_without_hit"] == 0
    assert rp["computed_tokens"] == fcfs["computed_tokens"]
    assert rp["hit_share"] == fcfs["hit_share"] > 0.4


def test_routing_residency_computes_less_twice_too(results: Results) -> None:
    fcfs, ours = (results[Run(TINY_SMALL_POOL, "lfm2", policy)] for policy in (FCFS, ROUTING_RESIDENCY))
    assert 2 * ours["recomputed_tokens"] <= fcfs["recomputed_tokens"]
    assert ours["hit_share"] > 2 * fcfs["hit_share"]
    assert ours["prefix_queries"] == 0


@pytest.mark.parametrize("model", TINY_MODELS)
def test_replies_are_those_of_fcfs_and_of_no_cache_at_all(results: Results, model: str) -> None:
    """One request at a time: vLLM's kernels round differently in other batches, whatever the order."""
    fcfs, *ours = (results[Run(TINY_ONE_AT_A_TIME, model, policy)] for policy in (FCFS, *policies_of(model)))
    uncached = results[Run(TINY_ONE_AT_A_TIME, model, FCFS, enable_prefix_caching=False)]
    for each in ours:
        assert each["hit_share"] > fcfs["hit_share"] > uncached["hit_share"] == 0
        assert each["replies"] == fcfs["replies"] == uncached["replies"]
