"""What can happen to a run, in the harness's own Python: `python scenarios.py` prints facts of each as JSON.

The gate is the process's, with two samples and one environment slot. After each scenario nothing may hold a
slot: the facts end with how many samples do.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import coresched_miniswe
from containers import run_in_containers
from minisweagent import Environment
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models import get_model
from minisweagent.models.test_models import DeterministicModel, make_output

from coresched.client.gate import process_gate

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo patch"


class Sandbox(Environment):
    """An environment of one's own: no `LocalEnvironment`, so that it starts something, which may fail."""

    def __init__(self, fails: bool = False, **config: Any) -> None:
        self.inner = LocalEnvironment(**config)
        self.config = self.inner.config
        if fails:
            raise RuntimeError("no such image")

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        return self.inner.execute(action, cwd)

    def get_template_vars(self, **options: Any) -> dict[str, Any]:
        return self.inner.get_template_vars(**options)

    def serialize(self) -> dict[str, Any]:
        return self.inner.serialize()


class Failing(DeterministicModel):
    """Raises what its first output names."""

    def query(self, messages: Any, **options: Any) -> Any:
        raise {"error": RuntimeError("model is down"), "interrupt": KeyboardInterrupt()}[
            self.config.outputs[0]["content"]
        ]


def environment(inner: str = "local", **config: Any) -> Any:
    chosen = {"environment_class": "coresched_miniswe.GatedEnvironment", "inner_class": inner, **config}
    return get_environment(chosen)


def model(*replies: tuple[str, ...], inner: str = "deterministic", content: str = "") -> Any:
    outputs = [make_output(content, [{"command": command} for command in reply]) for reply in replies]
    chosen = {"model_class": "coresched_miniswe.GatedModel", "inner_class": inner, "outputs": outputs}
    return get_model("deterministic", chosen)


def agent(model: Any, env: Any, **config: Any) -> Any:
    return DefaultAgent(model, env, system_template="s", instance_template="{{task}}", cost_limit=0, **config)


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def holding_the_slot(seconds: float) -> threading.Thread:
    """Another trajectory, whose command runs so long; returns when it has the slot."""
    other = agent(model((f"sleep {seconds}",), (SUBMIT,)), environment(timeout=60))
    thread = in_thread(lambda: other.run("hold"))
    while progress()["environment_running"] == 0:
        time.sleep(0.01)
    return thread


def progress() -> dict[str, Any]:
    gate = process_gate()
    assert gate is not None
    totals = gate.report().totals
    return {"admitted": totals.admitted, "environment_running": totals.environment_running}


def raised(work: Callable[[], object]) -> str:
    try:
        work()
    except BaseException as error:
        return type(error).__name__
    return ""


def waits_longer_than_its_timeout_and_limit() -> dict[str, Any]:
    holder = holding_the_slot(2.5)
    running = agent(
        model(("echo healthy",), ("sleep 30",), (SUBMIT,)),
        environment(timeout=1),
        wall_time_limit_seconds=2,  # the second command takes 1 s of it, the wait over 2 s none
    )
    result = running.run("wait")
    holder.join()
    observed = [one["content"] for one in running.messages if one["role"] == "user"][1:]
    info = running.save(None)["info"]
    return {"status": result["exit_status"], "observed": observed, "coresched": info["coresched"]}


def two_commands_in_one_stage() -> dict[str, Any]:
    running = agent(model(("echo a", "echo b"), (SUBMIT,)), environment())
    result = running.run("two", instance_id="two")
    again = agent(model(("echo a", "echo b"), (SUBMIT,)), running.env).run("two", instance_id="two")
    saved = running.save(None)["info"]
    return {"status": result["exit_status"], "again": again["submission"], "info": saved}


def limits_are_exceeded() -> dict[str, Any]:
    running = agent(model(("echo a",), ("echo b",)), environment(), step_limit=1)
    return {"status": running.run("limited")["exit_status"]}


def model_fails() -> dict[str, Any]:
    broken = f"{__name__}.Failing"

    def run(kind: str) -> None:
        agent(model(("x",), inner=broken, content=kind), environment()).run("fail")

    kinds = [raised(partial(run, kind)) for kind in ("error", "interrupt")]
    gate = process_gate()
    assert gate is not None
    return {"raised": kinds, "withdrawn": gate.report().totals.withdrawn}


def environment_does_not_start() -> dict[str, Any]:
    sandbox = f"{__name__}.Sandbox"
    kinds = [raised(lambda: environment(sandbox, fails=True)) for _ in range(3)]
    running = agent(model((SUBMIT,)), environment(sandbox, fails=False))
    during = progress()["admitted"]
    return {"raised": kinds, "admitted_with_it": during, "status": running.run("s")["exit_status"]}


def environment_is_never_run() -> dict[str, Any]:
    sandbox = environment(f"{__name__}.Sandbox")
    during = progress()["admitted"]
    del sandbox
    gc.collect()
    until = time.monotonic() + 20
    while progress()["admitted"] and time.monotonic() < until:
        time.sleep(0.01)
    return {"admitted_with_it": during}


def commands_outside_of_a_run() -> dict[str, Any]:
    env = environment()
    before = env.execute({"command": "echo before"})["output"]
    status = agent(model((SUBMIT,)), env).run("x")["exit_status"]
    after = env.execute({"command": "echo after"})["output"]
    return {"outputs": [before, after], "status": status}


def agent_of_another_kind() -> dict[str, Any]:
    env, answering = environment(), model(("echo a", "echo b"), ("echo c",))
    with coresched_miniswe.trajectory("other-kind") as running:
        for _ in range(2):
            for action in answering.query([])["extra"]["actions"]:
                env.execute(action)
        assert running is not None
        return running.info()


def agent_inside_an_agent() -> dict[str, Any]:
    class Delegating(DefaultAgent):
        def step(self) -> Any:
            agent(model(("echo inner",), (SUBMIT,)), environment()).run("inner")
            return super().step()

    running = Delegating(
        model((SUBMIT,)), environment(), system_template="s", instance_template="{{task}}", cost_limit=0
    )
    before = process_gate().report().totals.samples  # type: ignore[union-attr]
    status = running.run("outer")["exit_status"]
    after = process_gate().report().totals.samples  # type: ignore[union-attr]
    return {"status": status, "samples": after - before, "stages": running.save(None)["info"]["coresched"]}


def containers_of_the_runner() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return run_in_containers(Path(folder), ["a__1", "a__broken", "a__2", "a__3"], threads=3)


SCENARIOS: list[Callable[[], dict[str, Any]]] = [
    waits_longer_than_its_timeout_and_limit,
    two_commands_in_one_stage,
    limits_are_exceeded,
    model_fails,
    environment_does_not_start,
    environment_is_never_run,
    commands_outside_of_a_run,
    agent_of_another_kind,
    agent_inside_an_agent,
    containers_of_the_runner,
]

if __name__ == "__main__":
    sys.modules["scenarios"] = sys.modules["__main__"]
    __name__ = "scenarios"  # the import path of the classes above
    facts = {scenario.__name__: {**scenario(), **progress()} for scenario in SCENARIOS}
    json.dump(facts, sys.stdout, default=str)
