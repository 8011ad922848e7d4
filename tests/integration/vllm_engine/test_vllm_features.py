"""RP beside features of vLLM that touch the waiting queue, on whole engines: what feature_runs.py does."""

import json
from typing import Any

import pytest
from integration.engines.loaded import run_loaded
from integration.vllm_engine.environment import HERE, VLLM

pytestmark = [pytest.mark.vllm, pytest.mark.by_hand]

GROUPS = (
    "plain,parallel_sampling,structured_output,adapters,connectors",
    "speculative_decoding",  # vLLM makes no second engine in a process in which numba is loaded
)
RUNS = {name for group in GROUPS for name in group.split(",")}

Facts = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    done = run_loaded(VLLM, HERE / "feature_runs.py", tmp_path_factory.mktemp("features"), *GROUPS)
    found: Facts = dict(json.loads(line) for line in done.stdout.splitlines())
    assert set(found) == RUNS, done.stderr[-4000:]
    for name, outcome in found.items():
        assert "failed" not in outcome, f"{name}: {outcome['failed']}"
    return found


def test_the_longest_hit_goes_first(facts: Facts) -> None:
    assert facts["plain"]["admitted"] == ["b", "a", "c"]


def test_with_speculative_decoding_the_order_and_the_replies_are_the_same(facts: Facts) -> None:
    speculative, plain = facts["speculative_decoding"], facts["plain"]
    if "missing" in speculative:
        pytest.skip(f"the engine's environment has no {speculative['missing']}; requirements.txt names none")
    assert speculative["admitted"] == plain["admitted"]
    assert speculative["replies"] == plain["replies"]


def test_all_replies_to_a_prompt_have_its_label(facts: Facts) -> None:
    assert facts["parallel_sampling"]["admitted"] == [*"bbb", *"aaa", *"ccc"]


def test_a_request_whose_grammar_is_not_compiled_is_passed_over_and_keeps_its_place(facts: Facts) -> None:
    found = facts["structured_output"]
    assert found["passed over"] == ["b", "c"]
    assert found["admitted"] == ["a", "b", "c"]
    *letters, _end = found["replies"]["b.340"][0]
    assert "".join(chr(ord("!") + token) for token in letters) == "yes"


def test_a_request_whose_adapter_does_not_fit_is_passed_over_and_keeps_its_place(facts: Facts) -> None:
    found = facts["adapters"]
    assert found["passed over"] == ["b", "d"]
    assert found["admitted"] == ["c", "a", "b", "d"]


def test_what_connectors_hold_is_not_in_the_order_but_is_used(facts: Facts) -> None:
    """b, of which the engine's own cache has nothing any more, comes after a, whose prompt was loaded."""
    found = facts["connectors"]
    assert found["stored"] == [2, 2]
    assert found["loaded"] == 192
    assert found["admitted"] == ["a", "b", "c"]
    assert found["replies"] == facts["plain"]["replies"]
