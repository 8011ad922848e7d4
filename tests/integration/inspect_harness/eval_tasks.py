"""Evals as people write them: nothing here knows of coresched. Loaded by inspect, in its environment."""

import os
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.agent import Agent, agent, as_solver, as_tool, react
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, includes, model_graded_qa, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import Tool, ToolError, bash, tool
from inspect_ai.util import sandbox, subprocess

LOGGED = """
echo "start {job} $(date +%s.%N)" >> "{log}"
sleep {seconds}
echo "end {job} $(date +%s.%N)" >> "{log}"
"""


def logged(job: str, seconds: float) -> list[str]:
    return ["sh", "-c", LOGGED.format(job=job, seconds=seconds, log=os.environ["TOOL_LOG"])]


@tool
def work() -> Tool:
    async def execute(job: str, seconds: float, then: str) -> str:
        """Work for some time, in a process.

        Args:
            job: Whose work it is.
            seconds: How long it takes.
            then: How it ends.
        """
        # A shell that is killed would leave its sleep behind, for whose end inspect waits.
        await subprocess(["sleep", str(seconds)] if seconds > 10 else logged(job, seconds))
        healed = Path(f"{os.environ['TOOL_LOG']}.{then}.healed")
        if then == "error":
            raise ToolError("it broke")
        if then in ("fail", "flaky") and not healed.exists():
            if then == "flaky":
                healed.touch()
            raise RuntimeError("the tool is out of order")
        return then

    return execute


@tool
def ask() -> Tool:
    async def execute(question: str) -> str:
        """Ask a model.

        Args:
            question: What to ask.
        """
        return (await get_model().generate(question)).completion

    return execute


@agent
def helper() -> Agent:
    return react(name="helper", description="Helps.", prompt=None, tools=[work()])


@scorer(metrics=[accuracy()])
def command_score() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        result = await sandbox().exec(logged(str(state.sample_id), 0.1))
        return Score(value=1.0 if result.success else 0.0)

    return score


def samples(*names: str) -> list[Sample]:
    return [Sample(id=name, input=f"{name};", target="done") for name in names]


@task
def jobs() -> Task:
    return Task(
        dataset=samples(*(f"job-{number}" for number in range(6))),
        solver=[use_tools(work()), generate()],
        scorer=includes(),
    )


@task
def troubles() -> Task:
    return Task(
        dataset=samples("error", "fail", "flaky", "endless"),
        solver=[use_tools(work()), generate()],
        scorer=includes(),
        message_limit=8,
        fail_on_error=False,
    )


@task
def bosses() -> Task:
    return Task(
        dataset=samples(*(f"boss-{number}" for number in range(3))),
        solver=as_solver(react(prompt=None, tools=[work(), as_tool(helper()), ask()])),
        scorer=includes(),
    )


@task
def timed() -> Task:
    return Task(
        dataset=samples(*(f"timed-{number}" for number in range(3)), "late"),
        solver=[use_tools(work()), generate()],
        scorer=includes(),
        time_limit=3,
        working_limit=3,
    )


@task
def shells() -> Task:
    return Task(
        dataset=[
            Sample(id=name, input=f"{name};", target="done", setup=logged(name, 0.1)[2])
            for name in ("shell-0", "shell-1", "shell-2")
        ],
        solver=[use_tools(bash()), generate()],
        scorer=[includes(), command_score(), model_graded_qa()],
        sandbox="local",
    )
