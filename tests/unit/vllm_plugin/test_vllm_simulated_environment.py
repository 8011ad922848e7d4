"""The environment of vLLM's processes on a simulated device."""

from importlib.metadata import EntryPoint, EntryPoints

import pytest
from coresched_vllm.fleet.deployment import on_device


def test_our_front_ends_plugin_is_left_out_and_no_other() -> None:
    assert on_device({"VLLM_PLUGINS": "mine,coresched,theirs"}, {})["VLLM_PLUGINS"] == "mine,theirs"
    assert on_device({"VLLM_PLUGINS": "coresched"}, {})["VLLM_PLUGINS"] == ""


def test_without_a_choice_all_that_are_installed_load_but_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        EntryPoint(name, "x:y", group)
        for name, group in (
            ("coresched", "vllm.general_plugins"),
            ("models", "vllm.general_plugins"),
            ("stats", "vllm.stat_logger_plugins"),
            ("coresched", "console_scripts"),
        )
    )
    monkeypatch.setattr("importlib.metadata.entry_points", lambda: points)
    assert on_device({}, {})["VLLM_PLUGINS"] == "models,stats"


def test_the_device_and_the_users_variables_reach_it_offline() -> None:
    found = on_device({"HOME": "/h", "VLLM_LOGGING_LEVEL": "DEBUG"}, {"CORESCHED_SIMDEVICE_MEMORY": "80GiB"})
    assert (found["HOME"], found["VLLM_LOGGING_LEVEL"]) == ("/h", "DEBUG")
    assert (found["CORESCHED_SIMDEVICE_MEMORY"], found["HF_HUB_OFFLINE"]) == ("80GiB", "1")
