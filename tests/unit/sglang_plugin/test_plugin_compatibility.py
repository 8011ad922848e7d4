"""What the plugin checks of an SGLang before it enters it, on modules that stand in for one."""

import logging
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from coresched_sglang import plugin
from coresched_sglang.compatibility import missing, prefix_match, sglang_version


class HookRegistry:
    @classmethod
    def register(cls, target: str, hook: Any, hook_type: Any = None, *, source: Any = None) -> None:
        raise AssertionError("nothing may be hooked here")


class ServerArgs:
    @staticmethod
    def add_cli_args(parser: Any) -> None: ...

    def check_server_args(self) -> None: ...


class SchedulePolicy:
    def __init__(
        self,
        policy: str,
        tree_cache: Any,
        enable_hierarchical_cache: bool,
        enable_priority_scheduling: bool,
        schedule_low_priority_values_first: bool,
        something_new: int = 0,
    ) -> None: ...

    def calc_priority(self, waiting_queue: Any, running_batch: Any = None, tokens: int = 0) -> None: ...


class Scheduler:
    def get_new_batch_prefill(self, running_batch: Any) -> None: ...


class Req:
    def __init__(self, routing_key: Any, priority: Any) -> None:
        self.routing_key = routing_key
        self.priority = priority
        self.num_matched_prefix_tokens = 0


def match_kv_cache(req: Any, tree_cache: Any, token_ids: Any = None) -> None:
    req.num_matched_prefix_tokens = 7


def match_prefix_for_req(
    tree_cache: Any, req: Any, token_ids: Any = None, *, include_req: bool = False
) -> None:
    req.num_matched_prefix_tokens = 8 if include_req else -1


Contents = dict[str, dict[str, Any]]


@pytest.fixture
def contents() -> Contents:
    """The modules of an SGLang that has everything; a test takes away or changes something."""
    return {
        "sglang": {"__version__": "0.9.9"},
        "sglang.srt": {},
        "sglang.srt.plugins": {},
        "sglang.srt.plugins.hook_registry": {"HookRegistry": HookRegistry},
        "sglang.srt.server_args": {"ServerArgs": ServerArgs},
        "sglang.srt.managers": {},
        "sglang.srt.managers.schedule_policy": {"SchedulePolicy": SchedulePolicy},
        "sglang.srt.managers.scheduler": {"Scheduler": Scheduler},
        "sglang.srt.managers.schedule_batch": {"Req": Req},
        "sglang.srt.mem_cache": {},
        "sglang.srt.mem_cache.common": {"match_kv_cache": match_kv_cache},
    }


@pytest.fixture
def installed(contents: Contents, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def install() -> None:
        for name, members in contents.items():
            module = ModuleType(name)
            module.__path__ = []
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)
            parent, _, last = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], last, module)

    return install


def test_an_sglang_with_all_places_lacks_nothing(installed: Callable[[], None]) -> None:
    installed()
    assert missing() == []
    assert sglang_version() == "0.9.9"


def test_both_forms_of_the_prefix_match(contents: Contents, installed: Callable[[], None]) -> None:
    def hit() -> int:
        installed()
        match = prefix_match()
        assert match is not None
        request = Req(None, None)
        match(request, object())
        return request.num_matched_prefix_tokens

    assert hit() == 7
    del contents["sglang.srt.mem_cache.common"]["match_kv_cache"]
    contents["sglang.srt.managers.schedule_policy"]["match_prefix_for_req"] = match_prefix_for_req
    assert hit() == 8
    assert missing() == []


def other_order(tree_cache: Any, req: Any) -> None: ...


class OtherPolicy(SchedulePolicy):
    def __init__(self, policy: str, cache: Any) -> None: ...

    def calc_priority(self) -> None: ...


class OtherReq:
    def __init__(self) -> None:
        self.routing_key = None
        self.priority = None


@pytest.mark.parametrize(
    ("module", "members", "lacks"),
    [
        ("sglang.srt.server_args", {}, "sglang.srt.server_args.ServerArgs.add_cli_args does not exist"),
        (
            "sglang.srt.managers.schedule_policy",
            {"SchedulePolicy": OtherPolicy},
            "SchedulePolicy.__init__ takes (self, policy, cache), not (self, policy, tree_cache,",
        ),
        (
            "sglang.srt.managers.schedule_policy",
            {"SchedulePolicy": OtherPolicy},
            "SchedulePolicy.calc_priority takes (self), not (self, waiting_queue, running_batch, ...)",
        ),
        (
            "sglang.srt.managers.scheduler",
            {"Scheduler": SimpleNamespace(get_new_batch_prefill=3)},
            "Scheduler.get_new_batch_prefill is no function with a signature",
        ),
        ("sglang.srt.managers.schedule_batch", {"Req": OtherReq}, "Req has no num_matched_prefix_tokens"),
        ("sglang.srt.managers.schedule_batch", {}, "Req has no routing_key"),
        (
            "sglang.srt.mem_cache.common",
            {"match_kv_cache": other_order},
            "neither sglang.srt.mem_cache.common.match_kv_cache(req, tree_cache, ...) nor "
            "sglang.srt.managers.schedule_policy.match_prefix_for_req(tree_cache, req, ...) exists",
        ),
        ("sglang.srt.plugins.hook_registry", {}, "HookRegistry.register does not exist"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_hooked(
    contents: Contents,
    installed: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
    module: str,
    members: dict[str, Any],
    lacks: str,
) -> None:
    contents[module] = members
    installed()
    assert any(lacks in reason for reason in missing())
    before = {name: dict(vars(sys.modules[name])) for name in contents}
    plugin.register()
    assert {name: dict(vars(sys.modules[name])) for name in contents} == before
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert (
        "SGLang 0.9.9 is left unchanged and --schedule-policy routing-prefix, routing-residency is not "
        "offered: " in caplog.text
    )
    assert lacks in caplog.text


def test_without_sglang_everything_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "sglang", None)
    assert sglang_version() == "of unknown version"
    plugin.register()
    assert "sglang.srt.managers.schedule_policy.SchedulePolicy.__init__ does not exist" in caplog.text
