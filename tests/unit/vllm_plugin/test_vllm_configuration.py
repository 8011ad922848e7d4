"""C_A as vLLM's operator gives it, and from the block pool where none is given."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coresched_engine.label_capacity import CEILING, LabelCapacity
from coresched_vllm.configuration import (
    asked_label_capacity,
    derived_label_capacity,
    label_capacity_of,
    one_state_per_trajectory,
)

from coresched.cli.main import main
from coresched.errors import InputError

SECTION = 'additional_config["coresched"]'
VARIABLE = "CORESCHED_ONE_STATE_PER_TRAJECTORY"
FIELDS = "label_capacity, plan or one_state_per_trajectory"


def test_the_variable_prevails_over_the_additional_config_and_that_over_a_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"label_capacity": 30, "footprint": {"engine": "vllm", "attention_dp": 1}}))
    environment = {"CORESCHED_PLAN": str(plan)}
    assert asked_label_capacity({}, {}) is None
    assert asked_label_capacity({}, {"other": {"label_capacity": 3}}) is None
    assert asked_label_capacity({}, object()) is None
    assert asked_label_capacity({}, {"coresched": {"plan": str(plan)}}) == LabelCapacity(
        30, f"the plan {plan}"
    )
    additional = {"coresched": {"label_capacity": 20}}
    assert asked_label_capacity(environment, {}) == LabelCapacity(30, f"the plan {plan}")
    assert asked_label_capacity(environment, additional) == LabelCapacity(20, SECTION)
    environment["CORESCHED_LABEL_CAPACITY"] = "10"
    assert asked_label_capacity(environment, additional) == LabelCapacity(10, "CORESCHED_LABEL_CAPACITY")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (98, f"{SECTION} is 98; it must be an object with {FIELDS}"),
        ({}, f"{SECTION} is empty; give it {FIELDS}"),
        (
            {"capacity": 98},
            f'{SECTION} has a field "capacity"; it may have label_capacity, plan and one_state',
        ),
        ({"label_capacity": 0}, f"label_capacity in {SECTION} is 0; it must be an integer from 1"),
        ({"label_capacity": "98"}, f'label_capacity in {SECTION} is "98"; it must be an integer from 1'),
        ({"plan": 3}, f"plan in {SECTION} is 3; it must be the path of a plan"),
        ({"plan": "no.json"}, f"plan in {SECTION} names no.json, which cannot be read: No such file"),
    ],
)
def test_a_section_that_cannot_be_used_is_refused(section: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        asked_label_capacity({}, {"coresched": section})
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("retention", [[], ["--no-one-state-per-trajectory"]])
def test_what_the_plan_command_prints_for_vllm_is_a_plan(
    retention: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = ["--turns", "10", "--prompt", "2000", "--output", "200", "--response", "500"]
    options = ["--engine", "vllm", "--tp", "4", "--pool-memory", "40GiB", *workload, *retention, "--json"]
    assert main(["plan", "Qwen3-Next-80B-A3B", *options]) == 0
    printed = capsys.readouterr().out
    (tmp_path / "plan.json").write_text(printed)
    asked = asked_label_capacity({"CORESCHED_PLAN": str(tmp_path / "plan.json")}, {})
    assert asked is not None
    made = json.loads(printed)
    assert asked.value == made["label_capacity"] > 1
    assert one_state_per_trajectory(made["engine_environment"], {}) is not bool(retention)


def test_no_trajectory_that_the_pool_can_hold_lacks_a_place() -> None:
    assert derived_label_capacity(201, 4, beyond_the_pool=False).value == 50
    assert derived_label_capacity(2, 4, beyond_the_pool=False).value == 1
    assert derived_label_capacity(10**9, 1, beyond_the_pool=False).value == CEILING
    assert derived_label_capacity(201, 4, beyond_the_pool=True).value == CEILING


def test_the_pool_is_asked_only_where_nothing_is_given() -> None:
    pool = SimpleNamespace(num_blocks=201, kv_cache_groups=[0, 0, 0, 0])
    config = SimpleNamespace(additional_config={}, kv_transfer_config=None)
    derived = label_capacity_of({}, config, pool)
    assert derived == LabelCapacity(50, "the engine's 201 blocks over 4 groups of layers, at most 65,536")
    assert label_capacity_of({"CORESCHED_LABEL_CAPACITY": "7"}, config, pool).value == 7


def test_one_state_per_trajectory_is_on_unless_the_variable_or_the_field_says_otherwise() -> None:
    off = {"coresched": {"one_state_per_trajectory": False}}
    assert one_state_per_trajectory({}, {})
    assert one_state_per_trajectory({VARIABLE: ""}, {"coresched": {"label_capacity": 3}})
    assert not one_state_per_trajectory({}, off)
    assert one_state_per_trajectory({VARIABLE: "1"}, off)
    assert not one_state_per_trajectory({VARIABLE: "0"}, {})
    assert asked_label_capacity({}, off) is None


@pytest.mark.parametrize(
    ("environment", "value", "message"),
    [
        ({}, 0, f"one_state_per_trajectory in {SECTION} is 0; it must be true or false"),
        ({}, "false", f'one_state_per_trajectory in {SECTION} is "false"; it must be true or false'),
        ({VARIABLE: "1"}, None, f"one_state_per_trajectory in {SECTION} is null; it must be true or false"),
        ({VARIABLE: "no"}, True, f'{VARIABLE} is "no"; it must be 1 or 0'),
    ],
)
def test_another_value_for_it_is_refused(environment: dict[str, str], value: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        one_state_per_trajectory(environment, {"coresched": {"one_state_per_trajectory": value}})
    assert str(refused.value) == message
