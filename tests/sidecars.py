"""`coresched sidecar` in a process of its own, for tests."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


@asynccontextmanager
async def sidecar_process(*options: str) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Its URL and its process, which is killed if it still runs in the end."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "coresched", "sidecar", "--listen", "127.0.0.1:0"),
        *options,
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        assert line.startswith("coresched sidecar: listening on "), await process.communicate()
        yield f"http://{line.split()[-1]}", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
