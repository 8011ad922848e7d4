"""The simulated device inside SGLang: the places that it needs, its tensors, its refusals. No server."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.sglang_engine.environment import HERE, OFFLINE
from unit.capacity.model_configs import CONFIGS, write_config

pytestmark = pytest.mark.sglang


@dataclass
class Engine:
    """What was found out inside SGLang's interpreter, and what that wrote to stderr."""

    facts: dict[str, Any]
    errors: str


@pytest.fixture(scope="module")
def engine(sglang_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    config = write_config(tmp_path_factory.mktemp("model"), CONFIGS["Qwen3-Next-80B-A3B"])
    device = {"": "1", "_MEMORY": "80GiB", "_WEIGHTS": "50GiB"}
    ran = subprocess.run(
        [sglang_python, HERE / "device_facts.py", config.parent],
        env={
            **os.environ,
            **OFFLINE,
            **{f"CORESCHED_SIMDEVICE{name}": value for name, value in device.items()},
        },
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return Engine(json.loads(ran.stdout.splitlines()[-1]), ran.stderr)


def test_every_place_and_flag_that_is_relied_on_exists(engine: Engine) -> None:
    assert engine.facts["unsupported"] == []
    assert engine.facts["unknown flags"] == []


def test_what_another_version_lacks_is_named(engine: Engine) -> None:
    assert engine.facts["lost"] == [
        "sglang.srt.managers.scheduler.Scheduler.no_such "
        "(type object 'Scheduler' has no attribute 'no_such')",
        "sglang.srt.managers.scheduler.Scheduler.run_batch(no_such)",
        "sglang.srt.managers.utils.GenerationBatchResult.no_such",
    ]


def test_hooks_that_were_not_applied_are_noticed(engine: Engine) -> None:
    assert engine.facts["unhooked"] == engine.facts["hooks"] > 0
    assert engine.facts["unhooked with the plugin"] == []


def test_a_flag_that_cannot_be_simulated_ends_the_server_with_a_line(engine: Engine) -> None:
    assert engine.facts["exit code"] == 2
    assert "coresched_simdevice: --pp-size is 2; pipeline stages cannot be simulated" in engine.errors


def test_tensors_without_bytes_have_a_shape_and_refuse_to_be_written(engine: Engine) -> None:
    assert engine.facts["pool"] == [[1 << 30, 8, 128], 2 << 40, [2, 1 << 30]]
    assert "single memory location" in engine.facts["written"]
    assert engine.facts["table"] == [3, 3]
    assert engine.facts["small"] == [0, 2, 0, 0]


def test_the_doctor_says_that_the_plugin_is_left_out(engine: Engine) -> None:
    told = engine.facts["left out"]
    (row,) = (part for part in told["installed"] if part["name"] == "sglang plugin")
    assert row["broken"]
    assert "SGLANG_PLUGINS is 'another', so SGLang skips it" in row["note"]
    assert told["code"] == 1
