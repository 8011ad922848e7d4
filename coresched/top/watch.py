"""The live view: read and draw once a second, through restarts of the service, until q or Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import grpc
from rich.console import Console
from rich.live import Live

from coresched.client.unanswered import told
from coresched.errors import InputError
from coresched.top.frame import Frame
from coresched.top.snapshot import Reader, Snapshot

_INTERVAL_S = 1.0


async def read_once(target: str, connect: Callable[[], grpc.aio.Channel], *, tls: bool) -> Snapshot:
    """One snapshot. Raises InputError if the service refuses it, ConnectionError if it does not answer."""
    async with connect() as channel:
        try:
            return await Reader().read(channel)
        except grpc.aio.AioRpcError as error:
            raise (told(target, error, tls=tls) or error) from None


async def watch(target: str, connect: Callable[[], grpc.aio.Channel], console: Console, *, tls: bool) -> None:
    """Draw until SIGINT or the key q. Raises InputError if the service refuses what is asked for."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stopped.set)
    reader, channel = Reader(), connect()
    snapshot: Snapshot | None = None
    state, fresh = "connecting", time.monotonic()
    try:
        with (
            _keys(stopped),
            Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
        ):

            def draw() -> None:
                live.update(Frame(target, snapshot, state), refresh=True)

            while not stopped.is_set():
                draw()
                reading = asyncio.create_task(reader.read(channel))
                stopping = asyncio.create_task(stopped.wait())
                await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    return
                try:
                    snapshot = reading.result()
                    state, fresh = "", time.monotonic()
                except grpc.aio.AioRpcError as error:
                    why = told(target, error, tls=tls)
                    if isinstance(why, InputError):
                        raise why from None
                    state = f"reconnecting, {time.monotonic() - fresh:.0f} s"
                    # A channel that failed waits ever longer before it tries again.
                    await channel.close()
                    channel = connect()
                draw()
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(asyncio.shield(stopping), _INTERVAL_S)
                stopping.cancel()
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        await channel.close()


@contextmanager
def _keys(stopped: asyncio.Event) -> Iterator[None]:
    """Set `stopped` at the key q, without a return after it."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        keys = os.read(descriptor, 64)
        if not keys or b"q" in keys.lower():
            stopped.set()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, pressed)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
