"""Our capacity arithmetic against what SGLang's own Scheduler logs when it boots."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from integration.sglang_engine.environment import HERE, OFFLINE
from unit.capacity.model_configs import CONFIGS, write_config

from coresched.capacity.footprint import footprint
from coresched.capacity.observed import examine, observe_log
from coresched.capacity.observed.priced import price
from coresched.capacity.plan import Plan
from coresched.capacity.planner import plan, pool_bytes
from coresched.capacity.realise import deployment_flags
from coresched.capacity.sglang import SglangFlags, solve_pools
from coresched.capacity.summary import WorkloadSummary

pytestmark = pytest.mark.sglang

MEMORY, WEIGHTS, FRACTION = "96GiB", "60GiB", 0.9

EMBEDDINGS = 100 << 20
"""What the engine takes from the pools' memory of a model that sees images (SGLANG_VLM_CACHE_SIZE_MB)."""


@dataclass(frozen=True)
class Case:
    """A configuration; ``flags`` are SglangFlags', the dtypes None for the engine's defaults."""

    name: str
    model: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    tp: int = 1
    kv_dtype: str | None = None
    state_dtype: str | None = None
    fraction: float = FRACTION
    taken: int = 0
    """Bytes of the pools' memory that are for other things."""


LING, KIMI, NEXT = "Ling-3.0-tiny", "Kimi-Linear-48B-A3B", "Qwen3-Next-80B-A3B"
SERIAL = {"disable_overlap_schedule": True}
NO_BUFFER = {"mamba_radix_cache_strategy": "no_buffer", **SERIAL}

CASES = (
    Case("defaults", NEXT),
    Case("ratio", LING, {"mamba_full_memory_ratio": 0.09}),
    Case("pages", KIMI, {"page_size": 64, "mamba_full_memory_ratio": 2.26}),
    Case("no_buffer", NEXT, NO_BUFFER),
    Case("lazy", LING, {"mamba_radix_cache_strategy": "extra_buffer_lazy"}),
    Case("serial", KIMI, SERIAL),
    Case("skip lock", LING, {"skip_decode_lock": True}),
    Case("no radix cache", NEXT, {"disable_radix_cache": True, "max_running_requests": 40}),
    Case("state dtype", KIMI, state_dtype="bfloat16"),
    Case("fp8", LING, kv_dtype="fp8_e4m3"),
    Case("slots", NEXT, {"max_mamba_cache_size": 77, "max_running_requests": 12}),
    Case("tokens", NEXT, {"max_total_tokens": 50_000, "context_length": 32_768}),
    Case("two ranks", NEXT, {"mamba_full_memory_ratio": 0.3}, tp=2),
    Case("images", "Qwen3.5-27B", fraction=0.777, taken=EMBEDDINGS),
    Case("Mamba2", "Nemotron-Nano-9B-v2", {"page_size": 16}),
    Case("Mamba2, one group", "Granite-4.0-H-1B"),
    Case("both in a layer", "Falcon-H1-0.5B"),
    Case("short convolutions", "LFM2-1.2B", NO_BUFFER),
    Case("lightning", "BailingMoeV2_5"),
    Case("dense", "Qwen3-32B", {"page_size": 32}),
    Case("latent", "DeepSeek-V3"),
)
PLANS = {
    "plan": (LING, {"workers": 2}),
    "plan of pages": (NEXT, {"page_size": 64, "state_dtype": "bfloat16"}),
    "plan by ratio": (KIMI, {"estimator": "paper"}),
    "plan for images": ("Qwen3.5-27B", {}),
    "plan without buffers": ("LFM2-1.2B", {}),
    "plan of a dense model": ("Llama-3.1-8B", {"kv_dtype": "fp8_e4m3"}),
}
WORKLOAD = WorkloadSummary("12/20", "3000/6000", "80", "600/1500", samples=60)


def flags_of(case: Case, model: Path) -> SglangFlags:
    size = footprint(model, "sglang", case.tp)
    return SglangFlags(**{"context_length": size.max_context, **case.flags})


def words(case: Case, model: Path) -> list[str]:
    flags = flags_of(case, model)
    size = footprint(model, "sglang", case.tp)
    return [
        *("--model-path", str(model.parent), "--mem-fraction-static", str(case.fraction)),
        *flags.command_line(hybrid=size.state_bytes > 0),
        *deployment_flags(size, case.kv_dtype, case.state_dtype),
    ]


def planned(model: Path, options: dict[str, Any]) -> Plan:
    return plan(model, WORKLOAD, gpu_memory=MEMORY, weights=WEIGHTS, memory_fraction=FRACTION, **options)


@dataclass(frozen=True)
class Boots:
    """Where the logs are, and the models they are of."""

    folder: Path

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def model(self, name: str) -> Path:
        folder = self.folder / name
        if not folder.exists():
            folder.mkdir()
            write_config(folder, CONFIGS[name])
        return folder / "config.json"


@pytest.fixture(scope="module")
def boots(sglang_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Boots:
    made = Boots(tmp_path_factory.mktemp("boots"))
    cases: list[dict[str, Any]] = []
    for case in CASES:
        model = made.model(case.model)
        environment = flags_of(case, model).environment()
        cases.append({"name": case.name, "arguments": words(case, model), "environment": environment})
    for name, (model_name, options) in PLANS.items():
        model = made.model(model_name)
        drawn = planned(model, options)
        arguments = ["--model-path", str(model.parent), "--mem-fraction-static", str(FRACTION)]
        cases.append(
            {
                "name": name,
                "arguments": [*arguments, *drawn.engine_flags],
                "environment": drawn.engine_environment,
            }
        )
    (made.folder / "cases.json").write_text(json.dumps(cases))
    environment = {
        **os.environ,
        **OFFLINE,
        "CORESCHED_SIMDEVICE": "1",
        "CORESCHED_SIMDEVICE_MEMORY": MEMORY,
        "CORESCHED_SIMDEVICE_WEIGHTS": WEIGHTS,
    }
    command = [sglang_python, HERE / "boots.py", made.folder / "cases.json", made.folder]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr[-4000:]
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_engine_makes_the_pools_that_we_compute(boots: Boots, case: Case) -> None:
    model = boots.model(case.model)
    size = footprint(model, "sglang", case.tp, kv_dtype=case.kv_dtype, state_dtype=case.state_dtype)
    memory, _ = pool_bytes(None, MEMORY, WEIGHTS, case.fraction)
    ours = solve_pools(flags_of(case, model), memory - case.taken, size.kv_bytes, size.state_bytes)
    engines = observe_log(boots.log(case.name))
    assert engines.kv_tokens == ours.kv_tokens
    assert engines.state_slots == (ours.state_slots if size.state_bytes else None)
    assert engines.max_running_requests == ours.max_running_requests


@pytest.mark.parametrize("name", PLANS)
def test_a_plans_flags_make_the_pools_that_it_promises(boots: Boots, name: str) -> None:
    model_name, options = PLANS[name]
    pools = planned(boots.model(model_name), options).pools
    engines = observe_log(boots.log(name))
    assert engines.kv_tokens == pools.kv_tokens
    assert engines.state_slots == (pools.state_slots or None)
    assert engines.max_running_requests == pools.max_running_requests
    assert engines.page_size == pools.block_tokens


@pytest.mark.parametrize("name", [*(case.name for case in CASES), *PLANS])
def test_the_doctor_finds_the_pools_as_the_flags_give(boots: Boots, name: str) -> None:
    engines = observe_log(boots.log(name))
    findings = examine(engines, price(engines), None)
    pools = [finding for finding in findings if finding.topic == "pools"]
    assert [finding.status for finding in pools] == ["ok"], pools
