"""The SGLang plugin in the releases it names as tested, with their own modules."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from coresched_sglang.compatibility import TESTED_VERSIONS
from integration.sglang_engine.environment import ENGINE_VERSION, HERE, OFFLINE
from integration.sglang_engine.releases import unpacked_release
from unit.capacity.model_configs import write_config

pytestmark = pytest.mark.sglang

MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}


def facts_of(python: Path, version: str, model: Path) -> dict[str, Any]:
    environment = {**os.environ, **OFFLINE}
    for name in ("CORESCHED_LABEL_CAPACITY", "CORESCHED_SGLANG_CONFIG", "CORESCHED_PLAN"):
        environment.pop(name, None)
    if version != ENGINE_VERSION:
        environment["PYTHONPATH"] = str(unpacked_release(version))
    done = subprocess.run(
        [python, HERE / "plugin_in_release.py", model],
        capture_output=True,
        text=True,
        cwd="/",
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


@pytest.mark.parametrize("version", TESTED_VERSIONS)
def test_a_tested_release_takes_the_policy_and_orders_by_it(
    sglang_python: Path, version: str, tmp_path: Path
) -> None:
    facts = facts_of(sglang_python, version, write_config(tmp_path, MODEL).parent)
    assert facts["version"] == version
    assert facts["missing"] == []
    assert facts["tested"]
    # What routing-residency follows came with 0.5.22.
    residency = [] if version == "0.5.20" else ["routing-residency"]
    assert facts["parsed"] == ["routing-prefix", *residency]
    assert facts["checked"] == facts["priorities"] == "routing-prefix"
    assert facts["lpm with priorities"].startswith("AssertionError: To use priority scheduling, ")
    assert facts["decode"].startswith("InputError: --schedule-policy routing-prefix orders prefills, ")
    assert facts["diffusion"].startswith("InputError: --schedule-policy routing-prefix does not see what ")
    assert facts["orders"] == [
        ["a1", "b1"],
        ["b2", "a2", "c1", "d1"],
        ["b2", "a2", "c1", "d1"],
        ["100", "0", "0"],
    ]
    assert facts["orders by priority"][1] == ["c1", "b2", "a2", "d1"]
    assert facts["fcfs"][1] == ["c1", "a2", "b2", "d1"]
