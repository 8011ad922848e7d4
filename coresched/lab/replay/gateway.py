"""A `coresched gateway` in front of the endpoints, in a process that is there while a replay is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from coresched.errors import InputError
from coresched.lab.replay.endpoint import Endpoint

LOG: Final = "gateway.log"
"""What the gateway writes to standard error, in the folder of the run."""
START_S: Final = 60.0
HEALTHY_S: Final = 15.0
STOP_S: Final = 10.0
_ANNOUNCED: Final = b"coresched gateway: listening on "


@dataclass(frozen=True)
class Gateway:
    """A gateway that takes requests. ``ended`` is done, with its exit code, when it has ended by itself."""

    endpoint: Endpoint
    ended: asyncio.Task[int]


class _Health(msgspec.Struct):
    healthy_workers: int
    workers: int


@asynccontextmanager
async def gateway_before(
    endpoints: Sequence[Endpoint], *, load_bound: float, folder: Path, session: aiohttp.ClientSession
) -> AsyncIterator[Gateway]:
    """Start it on a free port, wait until it takes all endpoints for healthy, and stop it in the end.

    It routes by LBCH with ``load_bound``, and ends with this process, however that ends. Raises InputError
    where it does not start, or an endpoint does not answer its ``GET /health``.
    """
    log = folder / LOG
    # A worker is URL=WEIGHT: with the weight, an = in the URL is of the URL.
    workers = [f"--worker={endpoint.url}=1" for endpoint in endpoints]
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "coresched.lab.replay.tethered", "gateway", "--listen", "127.0.0.1:0"),
            *("--load-bound", repr(load_bound), "--grace-s", "1", *workers),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            # Ctrl-C is for the replay, which stops it when its own requests have ended.
            start_new_session=True,
        )
    ended = asyncio.create_task(process.wait())
    try:
        try:
            address = await _announced(process)
            gateway = Gateway(Endpoint("gateway", f"http://{address}"), ended)
            await _wait_until_healthy(gateway, len(endpoints), session)
        except InputError as error:
            said = _last_line(log)
            log.unlink()
            raise InputError(f"--router gateway: {error}{said}") from None
        yield gateway
    finally:
        await _stop(process, ended)


async def _announced(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
    except asyncio.TimeoutError:
        raise InputError(f"the gateway did not listen within {START_S:g} s") from None
    if not line.startswith(_ANNOUNCED):
        raise InputError("the gateway did not start")
    return line.removeprefix(_ANNOUNCED).decode().strip()


async def _wait_until_healthy(gateway: Gateway, workers: int, session: aiohttp.ClientSession) -> None:
    deadline = asyncio.get_running_loop().time() + HEALTHY_S
    healthy = 0
    while asyncio.get_running_loop().time() < deadline and not gateway.ended.done():
        try:
            async with session.get(f"{gateway.endpoint.url}/health") as response:
                content, status = await response.read(), response.status
        except (aiohttp.ClientError, OSError):
            status = 0
        if status == 200:
            healthy = msgspec.json.decode(content, type=_Health).healthy_workers
            if healthy == workers:
                return
        await asyncio.sleep(0.1)
    raise InputError(f"{healthy} of {workers} endpoints answer the gateway's GET /health; start the others")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return f"; it says: {lines[-1]}" if lines else ""


async def _stop(process: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(asyncio.shield(ended), STOP_S)
    except asyncio.TimeoutError:
        process.kill()
        await ended
