"""Rollouts with tools of verl in actors of a real Ray; run in Ray's Python, it writes FOLDER/results.json.

python tool_scenarios.py FOLDER
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import ray
from coresched_ray.coordinators import connect, coordinator, start_coordinator
from coresched_ray.tools import gated_model, gated_tool

from coresched.client.gate import Gate

FOLDER = Path(sys.argv[1])
LIMITS: dict[str, Any] = {"sample_concurrency": 8, "environment_concurrency": 2}
ROLLOUTS, CALLS = 12, 3


def base_tool() -> Any:
    """verl's BaseTool, without what `import verl` loads: torch, for one, which is not installed here."""
    if "verl" not in sys.modules:
        found = importlib.util.find_spec("verl")
        assert found is not None
        assert found.submodule_search_locations is not None
        (root,) = found.submodule_search_locations
        for name in ("verl", "verl.utils", "verl.tools"):
            package = types.ModuleType(name)
            package.__path__ = [str(Path(root, *name.split(".")[1:]))]
            sys.modules[name] = package
    from verl.tools.base_tool import BaseTool

    return BaseTool


def make_tools() -> tuple[Any, Any]:
    """A class of tools as a user of verl writes it, gated, and what its instances count."""
    parent = base_tool()
    from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

    running: Counter[str] = Counter()

    class Search(parent):  # type: ignore[misc, valid-type]
        most = 0
        at_once = 0

        async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
            sample = parameters["sample"]
            running[sample] += 1
            Search.most = max(Search.most, sum(count > 0 for count in running.values()))
            Search.at_once = max(Search.at_once, running[sample])
            await asyncio.sleep(0.05)
            running[sample] -= 1
            if parameters["call"] == 0:
                raise ValueError("no such page")
            if (model := parameters.get("model")) is not None:
                await model.generate("summarise")  # a tool that calls a model
            return ToolResponse(text=f"found for {sample}"), 0.0, {}

    schema = OpenAIFunctionToolSchema(type="function", function={"name": "search", "description": "of pages"})
    gated = gated_tool(Search)
    return gated(config={}, tool_schema=schema), Search


class Model:
    def __init__(self) -> None:
        self.calls = 0

    async def generate(self, prompt: str) -> str:
        self.calls += 1
        await asyncio.sleep(0.01)
        return prompt


async def call_tool(tool: Any, parameters: dict[str, Any]) -> str:
    """As verl's agent loop does: what a tool raises is told to the model."""
    instance_id = None
    try:
        instance_id, _ = await tool.create(create_kwargs={})
        response, _, _ = await tool.execute(instance_id, parameters, agent_data=None)
    except Exception as error:
        return f"Error executing tool: {error}"
    finally:
        if instance_id is not None:
            await tool.release(instance_id)
    text: str = response.text
    return text


@ray.remote(num_cpus=0)
class AgentLoopWorker:
    async def roll_out(self) -> dict[str, Any]:
        tool, counts = make_tools()
        model = gated_model(Model())
        gate = await asyncio.to_thread(lambda: Gate(service=coordinator("tools"), batch="rl", **LIMITS))

        async def rollout(name: str) -> list[str]:
            async with gate.sample(name):
                await model.generate("plan")
                parameters = [{"sample": name, "call": call} for call in range(CALLS)]
                texts = await asyncio.gather(*(call_tool(tool, one) for one in parameters))
                await model.generate("answer")
                await call_tool(tool, {"sample": name, "call": 1, "model": model})
                return list(texts)

        texts = await asyncio.gather(*(rollout(f"r{number}") for number in range(ROLLOUTS)))
        await asyncio.to_thread(gate.close)
        totals = gate.report().totals
        return {
            "texts": texts,
            "most samples": counts.most,
            "most of a sample": counts.at_once,
            "model calls": model.calls,
            "turns": totals.turns,
            "stages": totals.environment_stages,
            "finished": totals.finished,
        }

    async def outside(self) -> str:
        tool, _ = make_tools()
        return await call_tool(tool, {"sample": "nobody", "call": 1})

    async def samples_of_the_batch(self) -> dict[str, Any]:
        """Without a gate: the tool is told whose it is."""
        async with connect("tools", batch="plain", **LIMITS) as batch, batch.sample("p0") as sample:
            own = gated_tool(Counting(), sample=lambda: sample)
            await asyncio.gather(*(own.execute(str(number), {}) for number in range(3)))
        refused = []
        for wrong in (own, object()):
            try:
                gated_tool(wrong)
            except TypeError as error:
                refused.append(str(error).partition(">")[2])
        totals = batch.report().totals
        return {"stages": totals.environment_stages, "calls": own.calls, "refused": refused}


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    async def execute(self, instance_id: str, parameters: dict[str, Any]) -> None:
        self.calls += 1
        await asyncio.sleep(0.01)


def main() -> None:
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    start_coordinator("tools", journal=FOLDER / "tools.sqlite3")
    worker = AgentLoopWorker.remote()
    results = {
        "rollouts": ray.get(worker.roll_out.remote()),
        "plain": ray.get(worker.samples_of_the_batch.remote()),
    }
    try:
        results["outside"] = ray.get(worker.outside.remote())
    except Exception as error:
        results["outside"] = str(error)
    (FOLDER / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
