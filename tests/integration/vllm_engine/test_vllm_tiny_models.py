"""vLLM whole, with tiny models of three architectures: RP beside FCFS and longest prefix first."""

from pathlib import Path
from typing import Any

import pytest

from bench.vllm_policies.policies import FCFS, LPM, ROUTING_PREFIX
from bench.vllm_policies.processes import Run, carry_out
from bench.vllm_policies.setups import TINY_LARGE_POOL, TINY_ONE_AT_A_TIME, TINY_SMALL_POOL
from bench.vllm_policies.tiny_models import TINY_MODELS

pytestmark = pytest.mark.vllm

Results = dict[Run, dict[str, Any]]


@pytest.fixture(scope="module")
def results(vllm_python: Path) -> Results:
    groups = [
        [
            *(Run(TINY_SMALL_POOL, model, policy) for policy in (FCFS, LPM, ROUTING_PREFIX)),
            *(Run(TINY_LARGE_POOL, model, policy) for policy in (FCFS, ROUTING_PREFIX)),
            *(Run(TINY_ONE_AT_A_TIME, model, policy) for policy in (FCFS, ROUTING_PREFIX)),
            Run(TINY_ONE_AT_A_TIME, model, FCFS, enable_prefix_caching=False),
        ]
        for model in TINY_MODELS
    ]
    return dict(carry_out(str(vllm_python), groups))


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


@pytest.mark.parametrize("model", TINY_MODELS)
def test_replies_are_those_of_fcfs_and_of_no_cache_at_all(results: Results, model: str) -> None:
    """One request at a time: vLLM's kernels round differently in other batches, whatever the order."""
    fcfs, rp = (results[Run(TINY_ONE_AT_A_TIME, model, policy)] for policy in (FCFS, ROUTING_PREFIX))
    uncached = results[Run(TINY_ONE_AT_A_TIME, model, FCFS, enable_prefix_caching=False)]
    assert rp["hit_share"] > fcfs["hit_share"] > uncached["hit_share"] == 0
    assert rp["replies"] == fcfs["replies"] == uncached["replies"]
