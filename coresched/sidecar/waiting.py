"""Tool calls of one trajectory that wait for its slot, which their harness may give up meanwhile."""

from __future__ import annotations

import asyncio

from coresched.sidecar.pending import Call
from coresched.sidecar.slot import Slot
from coresched.sidecar.terms import CallGivenUpError, QueueDeadlineError


class WaitingCalls:
    """A harness may time out without closing its connection: what shows it then is what it does next."""

    def __init__(self, limit_s: float | None) -> None:
        """`limit_s`: a call waits no longer; None for no limit."""
        self._limit_s = limit_s
        self._waiting: dict[asyncio.Future[None], Call | None] = {}

    async def wait(self, slot: Slot, call: Call | None) -> None:
        """Until the slot is granted; an earlier request that makes the same call and still waits is given up.

        Raises QueueDeadlineError, CallGivenUpError, and what the batch raises.
        """
        if call is not None:
            self._give_up([waiting for waiting, made in self._waiting.items() if made is call])
        given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[given_up] = call
        try:
            await asyncio.wait(
                (slot.granted, given_up), timeout=self._limit_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            del self._waiting[given_up]
        if slot.granted.done():
            slot.granted.result()
        elif given_up.done():
            raise CallGivenUpError
        else:
            raise QueueDeadlineError

    def give_up(self) -> None:
        """The trajectory has gone on without them."""
        self._give_up(list(self._waiting))

    def _give_up(self, waits: list[asyncio.Future[None]]) -> None:
        for waiting in waits:
            if not waiting.done():
                waiting.set_result(None)
