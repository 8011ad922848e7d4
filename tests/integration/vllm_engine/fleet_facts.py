"""What fleets of vLLM's engines are and do, loaded once; vLLM's Python runs this.

    python fleet_facts.py POOLS.json

reads {"pools": [[model folder, flags], ...], "refusals": [[model folder, flags, policies], ...]}, and prints
a JSON object with the facts of each, and of a batch on a dense model.
"""

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
from coresched_engine.fleet.deployment import booted
from coresched_engine.fleet.processes import Template, template
from coresched_engine.virtual.device import MEMORY, STEP_TIMES, WEIGHTS, read_device
from coresched_vllm.fleet.deployment import VllmDeployment, on_device

from bench.sglang_policies.setups import SHORT_QUEUE
from coresched.errors import InputError
from coresched.lab.simulator.lockstep.run import simulate_in_lockstep
from coresched.lab.simulator.run import simulate
from coresched.lab.simulator.settings import EngineSettings, RunSettings

DEVICE = {MEMORY: "80GiB", WEIGHTS: "60GiB", STEP_TIMES: "h20-tp4-hybrid"}
BATCH = replace(
    SHORT_QUEUE, samples=8, turns=3, initial_prompt_tokens=2_000, output_tokens=16, response_tokens=600
).trajectories(0)


def pools(processes: Template, model: str, flags: list[str]) -> Any:
    processes.parse(flags, model, [])
    with booted(processes, 1, {}, {}) as (_, ready):
        return msgspec.to_builtins(ready)


def refusal(processes: Template, model: str, flags: list[str], policies: list[str]) -> str | None:
    try:
        processes.parse(flags, model, policies)
        with booted(processes, 1, {}, {}):
            return None
    except InputError as error:
        return str(error)


def without_pressure(processes: Template, model: str, flags: list[str]) -> dict[str, Any]:
    """Runs on vLLM, the same again, and on the simulator's own worker of the same memory."""
    parsed = processes.parse(flags, model, [])
    with booted(processes, 1, {}, {}) as (_, ready):
        pass
    engines = VllmDeployment(processes, parsed, ready, read_device(DEVICE).times, "test")
    fields: dict[str, Any] = {
        "name": "run",
        "workers": 2,
        "sample_concurrency": len(BATCH),
        "environment_concurrency": None,
        "state_ratio": engines.model.default_state_ratio,
        "label_capacity": 64,
        "routing": "lbch",
    }
    runs = [simulate_in_lockstep(BATCH, EngineSettings(**fields), engines) for _ in range(2)]
    runs.append(simulate(BATCH, RunSettings(**fields), engines.model))
    return {
        "metrics": [asdict(run.metrics) for run in runs],
        "turns": [run.turns and asdict(run.turns) for run in runs],
        "bounds": [run.bounds.best for run in runs],
        "overlap": engines.model.overlap_schedule,
    }


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text())
    with template("vLLM", "coresched_vllm.fleet", on_device(os.environ, DEVICE)) as processes:
        facts: dict[str, Any] = {
            "refusals": [refusal(processes, *each) for each in asked["refusals"]],
            "pools": [pools(processes, *each) for each in asked["pools"]],
            "without pressure": [without_pressure(processes, *each) for each in asked["without pressure"]],
        }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
