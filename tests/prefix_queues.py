"""The Prefix service without a network, for tests: its state laid open, and the engine's end of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count

from coresched.service.prefix.calls import PrefixCalls
from coresched.service.prefix.queues import WaitingQueues
from coresched.service.prefix.schedule import ScheduleStream
from coresched.v1 import prefix_pb2 as pb

NUMBERS = count()


def new_id() -> str:
    return f"call {next(NUMBERS)}"


def snapshot(queues: WaitingQueues) -> object:
    """All that the queues hold, to compare before and after."""
    return {
        (tenant, name): (
            [(repr(request), request.tokens) for request in queue._waiting.values()],
            [(repr(request), request.tokens) for request in queue._admitted.values()],
            queue._policy.labels(),
            (queue.label_capacity, queue._timed, queue._arrivals),
        )
        for tenant, by_name in queues._by_tenant.items()
        for name, queue in by_name.items()
    }


class StreamEnd:
    """A Schedule stream: each `send` returns what the server wrote next."""

    def __init__(self, calls: PrefixCalls, tenant: str = "") -> None:
        self.calls = calls
        self._loop = asyncio.new_event_loop()
        self._inbox: asyncio.Queue[pb.ScheduleRequest | StopAsyncIteration | None] = asyncio.Queue()
        self._outbox: asyncio.Queue[pb.ScheduleResponse] = asyncio.Queue()
        stream = ScheduleStream(calls, tenant, self._messages(), self._outbox.put)
        self._served = self._loop.create_task(stream.run())

    def send(self, message: pb.ScheduleRequest | None) -> pb.ScheduleResponse:
        self._inbox.put_nowait(message)
        return self.read()

    def read(self) -> pb.ScheduleResponse:
        return self._loop.run_until_complete(asyncio.wait_for(self._outbox.get(), 10))

    def end(self) -> list[pb.ScheduleResponse]:
        """End the stream, and return what the server still wrote."""
        self._inbox.put_nowait(StopAsyncIteration())
        self._loop.run_until_complete(asyncio.wait_for(self._served, 10))
        self._loop.close()
        return [self._outbox.get_nowait() for _ in range(self._outbox.qsize())]

    async def _messages(self) -> AsyncIterator[pb.ScheduleRequest | None]:
        while not isinstance(message := await self._inbox.get(), StopAsyncIteration):
            yield message
