"""Channels to a service that may move. The stub stays; below it is a channel to where it was seen last."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc

from coresched.client.lookup import Lookup
from coresched.client.remote.options import Connection

# One method serves all kinds of call, which the types of gRPC know as different ones; hence Any below.
Channel = TypeVar("Channel", bound=Any)

_LONGEST_LOOK_S = 10.0


class _Places(Generic[Channel]):
    """The channels so far, of which the last one is in use.

    Those before stay open until the end: gRPC would cancel calls that still wait there, and their service may
    be alive after all.
    """

    def __init__(self, lookup: Lookup, open_channel: Callable[[Connection], Channel]) -> None:
        self._lookup = lookup
        self._open = open_channel
        self._at: Connection | None = None
        self.channels: list[Channel] = []
        self.doubted = True
        """Whether the place is to be asked for before the next call."""

    @property
    def move(self) -> int:
        """How often the service was found in another place."""
        return len(self.channels)

    def doubt(self, move: int) -> None:
        """A call that began after so many moves was not answered."""
        self.doubted = self.doubted or move == self.move

    def find(self, left_s: float) -> Connection:
        """Blocks, from any thread. Raises ConnectionError."""
        return self._lookup.find(max(0.1, min(left_s, _LONGEST_LOOK_S)))

    def found(self, place: Connection) -> None:
        if place != self._at:
            self.channels.append(self._open(place))
            self._at = place
        self.doubted = False


class MovingChannel(grpc.aio.Channel):
    """For asyncio. Before each call, `arrive`; after one that was not answered, `doubt`."""

    def __init__(self, lookup: Lookup, open_channel: Callable[[Connection], grpc.aio.Channel]) -> None:
        self._places: _Places[grpc.aio.Channel] = _Places(lookup, open_channel)
        self._looking: asyncio.Task[None] | None = None

    async def arrive(self, left_s: float) -> int:
        """The number of moves so far, with the place known. Those who ask at once share one lookup.

        Raises ConnectionError if the place is not known yet.
        """
        if self._places.doubted:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look(left_s))
                self._looking.add_done_callback(_seen)
            await asyncio.shield(self._looking)
        return self._places.move

    async def _look(self, left_s: float) -> None:
        self._places.found(await asyncio.to_thread(self._places.find, left_s))

    def doubt(self, move: int) -> None:
        self._places.doubt(move)

    def _latest(self, kind: str) -> Callable[..., Any]:
        def multi_callable(*args: Any, **options: Any) -> Any:
            def call(*request: Any, **call_options: Any) -> Any:
                return getattr(self._places.channels[-1], kind)(*args, **options)(*request, **call_options)

            return call

        return multi_callable

    def unary_unary(self, *args: Any, **options: Any) -> Any:
        return self._latest("unary_unary")(*args, **options)

    def unary_stream(self, *args: Any, **options: Any) -> Any:
        return self._latest("unary_stream")(*args, **options)

    def stream_unary(self, *args: Any, **options: Any) -> Any:
        return self._latest("stream_unary")(*args, **options)

    def stream_stream(self, *args: Any, **options: Any) -> Any:
        return self._latest("stream_stream")(*args, **options)

    async def __aenter__(self) -> MovingChannel:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        for channel in self._places.channels:
            await channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._places.channels[-1].get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._places.channels[-1].wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._places.channels[-1].channel_ready()


def _seen(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # so that asyncio does not report it when nobody waits any more


class BlockingMovingChannel(grpc.Channel):
    """The same for threads."""

    def __init__(self, lookup: Lookup, open_channel: Callable[[Connection], grpc.Channel]) -> None:
        self._places: _Places[grpc.Channel] = _Places(lookup, open_channel)
        self._looking = threading.Lock()

    def arrive(self, left_s: float) -> int:
        """As that of MovingChannel."""
        if self._places.doubted:
            with self._looking:
                if self._places.doubted:
                    self._places.found(self._places.find(left_s))
        return self._places.move

    @property
    def move(self) -> int:
        """How often the service was found in another place so far."""
        return self._places.move

    def doubt(self, move: int) -> None:
        self._places.doubt(move)

    def unary_unary(self, *args: Any, **options: Any) -> Any:
        return _Latest(self._places, "unary_unary", args, options)

    def unary_stream(self, *args: Any, **options: Any) -> Any:
        return _Latest(self._places, "unary_stream", args, options)

    def stream_unary(self, *args: Any, **options: Any) -> Any:
        return _Latest(self._places, "stream_unary", args, options)

    def stream_stream(self, *args: Any, **options: Any) -> Any:
        return _Latest(self._places, "stream_stream", args, options)

    def subscribe(self, callback: Any, try_to_connect: bool = False) -> None:
        self._places.channels[-1].subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Any) -> None:
        self._places.channels[-1].unsubscribe(callback)

    def close(self) -> None:
        for channel in self._places.channels:
            channel.close()

    def __enter__(self) -> BlockingMovingChannel:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()


class _Latest:
    """A method of the channel that is in use when it is called."""

    def __init__(
        self, places: _Places[grpc.Channel], kind: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        self._places = places
        self._kind = kind
        self._args = args
        self._options = options

    def _method(self) -> Any:
        return getattr(self._places.channels[-1], self._kind)(*self._args, **self._options)

    def __call__(self, *request: Any, **options: Any) -> Any:
        return self._method()(*request, **options)

    def future(self, *request: Any, **options: Any) -> Any:
        return self._method().future(*request, **options)

    def with_call(self, *request: Any, **options: Any) -> Any:
        return self._method().with_call(*request, **options)
