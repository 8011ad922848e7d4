"""SGLang's arguments: the choice, the refusals at start, and priorities."""

import argparse
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
from coresched_sglang.arguments import check, offer

from coresched.errors import InputError


class ServerArgs:
    """The fields that are read, sealed as SGLang's resolved record is."""

    sealed = False

    def __init__(self, schedule_policy: str = "routing-prefix", **fields: Any) -> None:
        self.schedule_policy = schedule_policy
        self.enable_priority_scheduling = False
        for name, value in fields.items():
            setattr(self, name, value)
        self.sealed = True

    def __setattr__(self, name: str, value: object) -> None:
        if self.sealed:
            raise AttributeError("server_args is read-only")
        super().__setattr__(name, value)


def seen_by_sglang(server_args: ServerArgs) -> str:
    """The policy that SGLang's own check finds."""
    return str(check(lambda args: args.schedule_policy, server_args))


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CORESCHED_LABEL_CAPACITY", "CORESCHED_SGLANG_CONFIG", "CORESCHED_PLAN"):
        monkeypatch.delenv(name, raising=False)


def test_the_policy_joins_the_choices_once() -> None:
    shared = ["fcfs", "lpm"]
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule-policy", choices=shared, default="fcfs")
    parser.add_argument("--device", choices=["cpu"])
    offer(None, parser)
    offer(None, parser)
    assert parser.parse_args(["--schedule-policy", "routing-prefix"]).schedule_policy == "routing-prefix"
    assert "{fcfs,lpm,routing-prefix}" in parser.format_help()
    assert shared == ["fcfs", "lpm"]


def test_other_policies_are_sglangs_own_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORESCHED_LABEL_CAPACITY", "many")
    assert seen_by_sglang(ServerArgs("lpm", disaggregation_mode="decode")) == "lpm"


def test_a_bad_label_capacity_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORESCHED_LABEL_CAPACITY", "many")
    with pytest.raises(InputError, match=r'^CORESCHED_LABEL_CAPACITY is "many"'):
        seen_by_sglang(ServerArgs())


@pytest.mark.parametrize(
    ("spec", "file"), [("sglang.launch_server", "/lib/sglang/launch_server.py"), (None, "/venv/bin/sglang")]
)
def test_sglangs_own_commands_end_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spec: str | None, file: str
) -> None:
    program = ModuleType("__main__")
    program.__file__, program.__spec__ = file, None if spec is None else ModuleSpec(spec, None)
    monkeypatch.setitem(sys.modules, "__main__", program)
    monkeypatch.setenv("CORESCHED_LABEL_CAPACITY", "many")
    with pytest.raises(SystemExit) as ended:
        seen_by_sglang(ServerArgs())
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('coresched_sglang: CORESCHED_LABEL_CAPACITY is "many"; ')


def test_a_label_capacity_is_said_to_be_ignored_where_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("coresched_sglang.arguments.residency_missing", list)
    assert seen_by_sglang(ServerArgs("routing-residency")) == "routing-residency"
    assert not caplog.messages
    monkeypatch.setenv("CORESCHED_LABEL_CAPACITY", "many")
    monkeypatch.setenv("CORESCHED_PLAN", "none.json")
    assert seen_by_sglang(ServerArgs("routing-residency")) == "routing-residency"
    assert caplog.messages == [
        "--schedule-policy routing-residency has no label capacity, so CORESCHED_LABEL_CAPACITY and "
        "CORESCHED_PLAN are ignored"
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"disaggregation_mode": "decode"}, "--disaggregation-mode decode has none"),
        ({"enable_pd_role_switch": True}, "leave out --enable-pd-role-switch"),
        ({"dllm_algorithm": "LowConfidence"}, "diffusion models"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError) as refused:
        seen_by_sglang(ServerArgs(**fields))
    assert str(refused.value).startswith("--schedule-policy routing-prefix ")
    assert reason in str(refused.value)


def test_the_prefill_side_is_not_refused() -> None:
    args = ServerArgs(disaggregation_mode="prefill", enable_pd_role_switch=False, dllm_algorithm=None)
    assert seen_by_sglang(args) == "routing-prefix"


def test_priorities_pass_sglangs_check_as_fcfs_and_the_policy_stays() -> None:
    args = ServerArgs(enable_priority_scheduling=True)
    assert seen_by_sglang(args) == "fcfs"
    assert args.schedule_policy == "routing-prefix"

    def fails(args: Any) -> None:
        raise AssertionError("dp_size")

    with pytest.raises(AssertionError, match="dp_size"):
        check(fails, args)
    assert args.schedule_policy == "routing-prefix"
