"""A harness with real model calls and real tool processes, which knows what ran; for tests of recordings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai

import coresched.httpx
from coresched.trajectory.schema import Trajectory

MODEL = "h20-tp4-hybrid"


@dataclass
class Truth:
    """What one sample did by the harness's own account."""

    usages: list[Any] = field(default_factory=list)
    """Of each turn, as the client got it."""
    stage_s: list[float] = field(default_factory=list)
    """What each tool took, measured around its process."""
    queue_s: list[float] = field(default_factory=list)


async def tool(seconds: float) -> float:
    """A real process; the seconds that it took."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec("sleep", str(seconds))
    await process.wait()
    return time.perf_counter() - began


async def ask(client: openai.AsyncOpenAI, messages: list[Any], stream: bool) -> tuple[str, Any]:
    """The reply and its usage."""
    if not stream:
        whole = await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=12)
        return whole.choices[0].message.content or "", whole.usage
    pieces, usage = [], None
    chunks = await client.chat.completions.create(
        model=MODEL,
        messages=messages,
        max_tokens=12,
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in chunks:
        usage = chunk.usage or usage
        pieces += [choice.delta.content or "" for choice in chunk.choices]
    return "".join(pieces), usage


async def run_sample(
    batch: Any, client: openai.AsyncOpenAI, name: str, *, tool_s: float, turns: int = 3
) -> Truth:
    """One trajectory: `turns` model calls, whole and streamed by turns, with a tool between two."""
    truth = Truth()
    messages: list[Any] = [{"role": "user", "content": f"task {name} " * 8}]
    async with batch.sample(name) as sample:
        for number in range(turns):
            async with sample.inference() as turn:
                reply, usage = await ask(client, messages, stream=number % 2 == 1)
                truth.usages.append(usage)
                turn.usage(prompt_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens)
            messages += [{"role": "assistant", "content": reply}]
            if number < turns - 1:
                async with sample.environment() as stage:
                    truth.queue_s.append(stage.queue_s)
                    truth.stage_s.append(await tool(tool_s))
                messages += [{"role": "user", "content": f"the tool said {number} " * (number + 2)}]
    return truth


def routed_client(workers: Sequence[str], **options: Any) -> openai.AsyncOpenAI:
    """An unmodified client over a transport of these workers."""
    transport = coresched.httpx.Transport(workers, **options)
    return openai.AsyncOpenAI(
        api_key="none",
        base_url="http://workers/v1",
        http_client=httpx.AsyncClient(transport=transport),
        max_retries=0,
    )


def check_trace(found: dict[str, Trajectory], truths: dict[str, Truth], *, within_s: float = 0.1) -> None:
    """The trace has each turn once, with the worker's own counts, and tools as long as they took."""
    assert found.keys() == truths.keys()
    for name, truth in truths.items():
        trajectory = found[name]
        assert trajectory.prompt_tokens() == [usage.prompt_tokens for usage in truth.usages]
        assert [turn.output_tokens for turn in trajectory.turns] == [
            usage.completion_tokens for usage in truth.usages
        ]
        stages = [turn.env for turn in trajectory.turns if turn.env is not None]
        assert [stage.quality for stage in stages] == ["exact"] * len(truth.stage_s)
        for stage, took_s in zip(stages, truth.stage_s, strict=True):
            assert stage.duration_s is not None
            assert took_s - 0.001 <= stage.duration_s <= took_s + within_s
        assert all(turn.infer_s is not None for turn in trajectory.turns)
