"""A tool server with MCP-Atlas's endpoints, in a process of its own, that keeps a record of its calls.

Tools sleep as long as they are told: `work` always `ms`, `stuck` at its first call with the same arguments so
long that clients give up, `flaky` fails its first. A caller that leaves does not stop a tool, as in most
servers. GET /record has every call and who else was being served.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

TOOLS = ("work", "stuck", "flaky", "museum")
STUCK_S = 1.5


class ToolServer:
    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.busy: list[str | None] = []  # whose calls are being served
        self.most_calls = 0
        self.most_trajectories = 0
        self._made: Counter[str] = Counter()

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/", self._health)
        app.router.add_post("/list-tools", self._list)
        app.router.add_post("/call-tool", self._call)
        app.router.add_get("/record", self._record)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response([{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS])

    async def _call(self, request: web.Request) -> web.Response:
        asked = await request.json()
        name, arguments = asked["tool_name"], asked["tool_args"]
        key = json.dumps(asked, sort_keys=True)
        self._made[key] += 1
        label = request.headers.get("x-smg-routing-key")
        call = {"tool": name, "arguments": arguments, "label": label, "began": time.monotonic()}
        self.calls.append(call)
        self.busy.append(label)
        self.most_calls = max(self.most_calls, len(self.busy))
        self.most_trajectories = max(self.most_trajectories, len(set(self.busy)))
        try:
            stuck = name == "stuck" and self._made[key] == 1
            await asyncio.sleep(STUCK_S if stuck else arguments.get("ms", 1) / 1000)
        finally:
            self.busy.remove(label)
            call["ended"] = time.monotonic()
        if name == "flaky" and self._made[key] == 1:
            return web.json_response({"detail": "it fails at first"}, status=500)
        return web.json_response([{"type": "text", "text": f"{name} says {key}"}])

    async def _record(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "calls": self.calls,
                "most_calls": self.most_calls,
                "most_trajectories": self.most_trajectories,
            }
        )


@asynccontextmanager
async def tool_server() -> AsyncIterator[str]:
    """Its URL; the process is killed in the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__)), stdout=asyncio.subprocess.PIPE, env={**os.environ}
    )
    assert process.stdout is not None
    try:
        yield (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
    finally:
        process.kill()
        await process.wait()


async def _serve() -> None:
    runner = web.AppRunner(ToolServer().application(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
