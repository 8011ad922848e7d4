"""`coresched gateway` in a process of its own before workers in this one, for tests."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from gateways import FakeWorker

CHUNK = {"id": "c", "created": 1, "model": "m"}


async def complete(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    """Says the last message again, in one piece or word by word."""
    asked = json.loads(body)
    said = asked["messages"][-1]["content"]
    if not asked.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        return web.json_response({**CHUNK, "object": "chat.completion", "choices": [choice]})
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for word in said.split():
        choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
        event = {**CHUNK, "object": "chat.completion.chunk", "choices": [choice]}
        await answer.write(b"data: %s\n\n" % json.dumps(event).encode())
    await answer.write(b"data: [DONE]\n\n")
    return answer


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[list[FakeWorker]]:
    started = [FakeWorker(complete) for _ in range(count)]
    for worker in started:
        worker.gate.set()
        await worker.start()
    yield started
    for worker in started:
        await worker.kill()


@asynccontextmanager
async def gateway(
    started: list[FakeWorker], *options: str, listen: str = "127.0.0.1:0", descriptors: int = 256
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """The address that `coresched gateway` printed, and its process, which is killed if it still runs."""
    command = [sys.executable, "-m", "coresched", "gateway", "--listen", listen, *options]
    command += [f"--worker={worker.url}" for worker in started]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", f'ulimit -S -n {descriptors}; exec "$@"', "sh", *command, stdout=pipe, stderr=pipe
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        assert line.startswith("coresched gateway: listening on "), await process.communicate()
        yield line.split()[-1], process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
