"""C_A as the operator gives it: which source prevails, and what each refusal says."""

import json
from pathlib import Path
from typing import Any

import pytest
from coresched_sglang.configuration import LabelCapacity, asked_label_capacity

from coresched.cli.main import main
from coresched.errors import InputError


def write(path: Path, value: Any) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def plan_of(label_capacity: Any = 98, engine: str = "sglang", attention_dp: Any = 1) -> dict[str, Any]:
    return {"label_capacity": label_capacity, "footprint": {"engine": engine, "attention_dp": attention_dp}}


def test_nothing_asked_for() -> None:
    assert asked_label_capacity({}) is None
    assert asked_label_capacity({"CORESCHED_LABEL_CAPACITY": "", "CORESCHED_PLAN": ""}) is None


def test_the_variable_prevails_over_the_file_and_the_file_over_the_plan(tmp_path: Path) -> None:
    plan = write(tmp_path / "plan.json", plan_of(30))
    file = write(tmp_path / "rp.json", {"label_capacity": 20})
    environment = {"CORESCHED_PLAN": plan}
    assert asked_label_capacity(environment) == LabelCapacity(30, f"the plan {plan}")
    environment["CORESCHED_SGLANG_CONFIG"] = file
    assert asked_label_capacity(environment) == LabelCapacity(20, file)
    environment["CORESCHED_LABEL_CAPACITY"] = " 10 "
    assert asked_label_capacity(environment) == LabelCapacity(10, "CORESCHED_LABEL_CAPACITY")


def test_the_file_names_a_plan_from_its_own_folder_and_a_variable_another(tmp_path: Path) -> None:
    write(tmp_path / "plan.json", plan_of(30))
    environment = {"CORESCHED_SGLANG_CONFIG": write(tmp_path / "rp.json", {"plan": "plan.json"})}
    asked = asked_label_capacity(environment)
    assert asked is not None
    assert asked.value == 30
    environment["CORESCHED_PLAN"] = write(tmp_path / "other.json", plan_of(40))
    asked = asked_label_capacity(environment)
    assert asked is not None
    assert asked.value == 40


def test_ranks_of_attention_data_parallelism_share_a_plans_capacity(tmp_path: Path) -> None:
    plan = write(tmp_path / "plan.json", plan_of(99, attention_dp=4))
    assert asked_label_capacity({"CORESCHED_PLAN": plan}) == LabelCapacity(
        25, f"the plan {plan}, 99 a worker over 4 ranks"
    )


def test_what_the_plan_command_prints_is_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = ["--turns", "10", "--prompt", "2000", "--output", "200", "--response", "500"]
    assert (
        main(["plan", "Qwen3-Next-80B-A3B", "--tp", "4", "--pool-memory", "40GiB", *workload, "--json"]) == 0
    )
    printed = capsys.readouterr().out
    plan = write(tmp_path / "plan.json", printed)
    asked = asked_label_capacity({"CORESCHED_PLAN": plan})
    assert asked is not None
    assert asked.value == json.loads(printed)["label_capacity"] > 1


@pytest.mark.parametrize(
    "value", ["0", "-1", "1.5", "1e3", "ten", "0x10", "٣", "9" * 5000, "16777217", "true"]
)
def test_a_variable_that_is_no_capacity_is_refused_by_name(value: str) -> None:
    with pytest.raises(
        InputError, match=r"^CORESCHED_LABEL_CAPACITY is .*; it must be an integer from 1 to "
    ):
        asked_label_capacity({"CORESCHED_LABEL_CAPACITY": value})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("label_capacity: 3", "which is no JSON; give a JSON object"),
        ("[3]", "which holds no JSON object; give one"),
        ("[" * 100_000, "which is no JSON; give a JSON object"),
        ({}, "which is empty; give it label_capacity or plan"),
        ({"label_capacity": 3, "labels": 4}, 'a field "labels"; it may have label_capacity and plan'),
        ({"label_capacity": True}, "is true; it must be an integer from 1"),
        ({"label_capacity": None}, "is null; it must be an integer from 1"),
        ({"plan": 3}, "is 3; it must be the path of a plan"),
        ({"plan": ""}, 'is ""; it must be the path of a plan'),
        ({"plan": "none.json"}, "none.json, which cannot be read: No such file or directory; give a file"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, content: Any, message: str) -> None:
    file = write(tmp_path / "rp.json", content)
    with pytest.raises(InputError) as refused:
        asked_label_capacity({"CORESCHED_SGLANG_CONFIG": file})
    assert message in str(refused.value)
    assert "rp.json" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"label_capacity": 3}, "which is no plan; write one with `coresched plan ... --json`"),
        ({"footprint": {}}, "which is no plan"),
        (plan_of(engine="vllm"), 'a plan for "vllm"; make one with `coresched plan --engine sglang`'),
        (plan_of(label_capacity=0), "label_capacity in"),
        (plan_of(attention_dp=None), "footprint.attention_dp in"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused(tmp_path: Path, plan: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        asked_label_capacity({"CORESCHED_PLAN": write(tmp_path / "plan.json", plan)})
    assert message in str(refused.value)


def test_what_does_not_prevail_is_checked_all_the_same(tmp_path: Path) -> None:
    environment = {"CORESCHED_LABEL_CAPACITY": "8", "CORESCHED_PLAN": str(tmp_path)}
    with pytest.raises(InputError, match=r"^CORESCHED_PLAN names .*, which cannot be read: Is a directory"):
        asked_label_capacity(environment)
