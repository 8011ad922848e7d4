"""All simulations of a run, by threads or by worker processes."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tau2.orchestrator.orchestrator import GREETING, Environment, Orchestrator, Side


@dataclass
class SimulationRun:
    task_id: str
    reward: float
    steps: int
    termination_reason: str
    timeout_s: float | None = None  # as it was in the end
    trial: int | None = None
    info: dict[str, Any] | None = None


def build_orchestrator(config: Any, task: Any, *, seed: int | None = None) -> Orchestrator:
    greeted = [{"role": "assistant", "content": GREETING}]
    agent = Side(config.llm_agent, config.llm_args_agent, "agent_response", greeted)
    user = Side(config.llm_user, config.llm_args_user, "user_simulator_response", [])
    return Orchestrator(agent, user, Environment(), task, config.timeout)


def run_single_task(
    config: Any, task: Any, *, seed: int | None = None, save_dir: Path | None = None
) -> SimulationRun:
    orchestrator = build_orchestrator(config, task, seed=seed)
    steps = orchestrator.run()
    reward = float(orchestrator.environment.tasks == task.expected)
    return SimulationRun(
        task.id, reward, steps, "timeout" if orchestrator.timed_out else "user_stop", orchestrator.timeout
    )


def run_unit(config: Any, task_id: str, trial: int) -> SimulationRun:
    reason = ""
    for _ in range(config.max_retries + 1):
        try:
            simulation = run_single_task(config, task_of(task_id), seed=trial)
        except Exception as error:
            reason = str(error)
        else:
            simulation.trial = trial
            return simulation
    return SimulationRun(task_id, 0.0, 0, f"infrastructure_error: {reason}", None, trial)


def task_of(task_id: str) -> Any:
    return SimpleNamespace(id=task_id, expected=["Meeting"] if task_id.startswith("create") else [])


def run_domain(config: Any) -> list[SimulationRun]:
    units = [(task_id, trial) for task_id in config.task_ids for trial in range(config.num_trials)]
    if config.workers > 0:
        from tau2.runner.controller import drive_batches

        simulations = drive_batches(config, units, workers=config.workers, slots=config.max_concurrency)
    else:
        with ThreadPoolExecutor(config.max_concurrency) as pool:
            runs = [pool.submit(run_unit, config, *unit) for unit in units]
            simulations = [asdict(run.result()) for run in runs]
    folder = Path(os.environ["TAU2_DATA_DIR"]) / "simulations" / config.save_to
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({"simulations": simulations}))
    return simulations
