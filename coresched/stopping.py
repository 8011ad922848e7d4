"""How a server is told to stop: the first signal lets open work end, the second does not."""

from __future__ import annotations

import asyncio
import signal


def stop_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Set by the first of SIGTERM, SIGINT and SIGHUP, and by the second; for the running event loop."""
    first, second = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        (second if first.is_set() else first).set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    return first, second
