"""Whatever samples do with tools, models and agents at once: C_E holds, no step is refused, all end."""

from __future__ import annotations

from contextlib import nullcontext

import anyio
import pytest
from coresched_inspect.stages import Execution, Stages, call_in_scope, model_call
from hypothesis import given, settings
from hypothesis import strategies as st

from coresched.client.gate import Gate

# What an agent does, step by step: ask a model, call tools, or have agents work beside each other. A tool
# works, and may do the same in between.
Step = tuple[str, "list[Agent]"]
Agent = list[Step]

_asks = st.just(("asks", []))


def agents_of(*kinds: str) -> st.SearchStrategy[Agent]:
    return st.recursive(
        st.lists(_asks, max_size=2),
        lambda agents: st.lists(
            _asks | st.tuples(st.sampled_from(kinds), st.lists(agents, min_size=1, max_size=3)), max_size=4
        ),
        max_leaves=8,
    )


class World:
    """What runs of each sample: work of its tools, outside of models."""

    def __init__(self, slots: int) -> None:
        """At most so many samples may work at once."""
        self.slots = slots
        self.working: dict[str, int] = {}

    async def work(self, sample: str) -> None:
        self.working[sample] = self.working.get(sample, 0) + 1
        try:
            for _ in range(2):
                assert sum(count > 0 for count in self.working.values()) <= self.slots
                await anyio.sleep(0)
        finally:
            self.working[sample] -= 1


async def run_agent(world: World, name: str, stages: Stages, agent: Agent) -> None:
    for kind, inner in agent:
        if kind == "asks":
            async with model_call(call_in_scope()):
                turn = await stages.begin_turn()
                await anyio.sleep(0)
                await stages.end_turn(turn)
        elif kind == "tools":
            execution = Execution(stages)
            async with execution.work(), anyio.create_task_group() as group:
                for one in inner:
                    group.start_soon(run_tool, world, name, stages, execution, one)
        else:
            async with anyio.create_task_group() as group:
                for one in inner:
                    group.start_soon(run_agent, world, name, stages, one)
                if kind == "cut":
                    await anyio.sleep(0.001)
                    group.cancel_scope.cancel()


async def run_tool(world: World, name: str, stages: Stages, execution: Execution, agent: Agent) -> None:
    async with execution.call():
        for step in agent:
            await world.work(name)
            await run_agent(world, name, stages, [step])
        await world.work(name)


async def run_sample(world: World, gate: Gate, name: str, agent: Agent) -> None:
    async with gate.sample(name) as sample:
        stages = Stages(sample, nullcontext)
        await run_agent(world, name, stages, agent)
        await stages.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=60)
@given(agents=st.lists(agents_of("tools", "beside"), min_size=1, max_size=4), slots=st.integers(1, 2))
def test_samples_of_any_shape_share_the_slots_and_end(backend: str, agents: list[Agent], slots: int) -> None:
    run_all(backend, agents, World(slots))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=60)
@given(agents=st.lists(agents_of("tools", "beside", "cut"), min_size=1, max_size=4))
def test_what_is_cancelled_leaves_no_slot_taken_and_no_stage_open(backend: str, agents: list[Agent]) -> None:
    """A tool may go on without its slot after the cancellation of its model call, so C_E is not looked at."""
    run_all(backend, agents, World(len(agents)), slots=1)


def run_all(backend: str, agents: list[Agent], world: World, slots: int | None = None) -> None:
    async def all_of_them() -> None:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for number, agent in enumerate(agents):
                    group.start_soon(run_sample, world, gate, str(number), agent)

    with Gate(sample_concurrency=3, environment_concurrency=slots or world.slots) as gate:
        anyio.run(all_of_them, backend=backend)
        totals = gate.report().totals
    assert totals.finished == len(agents)
    assert totals.environment_running == totals.environment_queued == 0
