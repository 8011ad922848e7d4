"""vLLM whole, with tiny models of three architectures: RP beside FCFS and longest prefix first."""

from pathlib import Path
from typing import Any

import pytest

from bench.vllm_policies.policies import FCFS, LPM, ROUTING_PREFIX
from bench.vllm_policies.processes import Run, carry_out
from bench.vllm_policies.setups import TINY_LARGE_POOL, TINY_SETUPS, TINY_SMALL_POOL, TinySetUp
from bench.vllm_policies.tiny_models import TINY_MODELS

pytestmark = pytest.mark.vllm

POLICIES = (FCFS, LPM, ROUTING_PREFIX)

Results = dict[Run, dict[str, Any]]


@pytest.fixture(scope="module")
def results(vllm_python: Path) -> Results:
    groups = [
        [
            *(Run(setup, model, policy) for setup in TINY_SETUPS for policy in POLICIES),
            Run(TINY_LARGE_POOL, model, FCFS, enable_prefix_caching=False),
        ]
        for model in TINY_MODELS
    ]
    return dict(carry_out(str(vllm_python), groups))


def found(results: Results, setup: TinySetUp, model: str) -> list[dict[str, Any]]:
    return [results[Run(setup, model, policy)] for policy in POLICIES]


@pytest.mark.parametrize("model", TINY_MODELS)
def test_under_pressure_at_most_half_is_computed_twice(results: Results, model: str) -> None:
    fcfs, lpm, rp = found(results, TINY_SMALL_POOL, model)
    assert 2 * rp["recomputed_tokens"] <= fcfs["recomputed_tokens"]
    assert rp["recomputed_tokens"] <= lpm["recomputed_tokens"]
    assert rp["hit_share"] > fcfs["hit_share"]
    assert rp["prefix_queries"] <= rp["later_turns"]
    assert lpm["prefix_queries"] > 5 * rp["prefix_queries"]


@pytest.mark.parametrize("model", TINY_MODELS)
def test_without_pressure_no_more_is_computed_than_under_fcfs(results: Results, model: str) -> None:
    fcfs, lpm, rp = found(results, TINY_LARGE_POOL, model)
    assert fcfs["later_turns_without_hit"] == 0
    assert rp["computed_tokens"] == fcfs["computed_tokens"] == lpm["computed_tokens"]
    assert rp["hit_share"] == fcfs["hit_share"] > 0.4


@pytest.mark.parametrize("model", TINY_MODELS)
def test_replies_depend_on_neither_the_order_nor_the_cache(results: Results, model: str) -> None:
    """In bfloat16 and with experts, too; the weights are so large that a wrong state would show."""
    uncached = results[Run(TINY_LARGE_POOL, model, FCFS, enable_prefix_caching=False)]
    assert uncached["hit_share"] == 0
    runs = [*found(results, TINY_SMALL_POOL, model), *found(results, TINY_LARGE_POOL, model)]
    assert {run["replies"] for run in runs} == {uncached["replies"]}
