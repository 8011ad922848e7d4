"""The blocks of a gate, with `with` for threads and `async with` for tasks of any event loop."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from coresched.client.errors import BatchClosedError
from coresched.client.gate.home import Call, Home
from coresched.client.turn import TurnFace, checked_exclude
from coresched.core.checks import check_positive
from coresched.recording.harness import NOT_RECORDED

if TYPE_CHECKING:  # the remote ones load gRPC
    from coresched.client import embedded
    from coresched.client.remote import async_sample

    AtHome = embedded.Sample | async_sample.Sample

Self = TypeVar("Self", bound="Block[Any]")
Inner = TypeVar("Inner")

_sample: ContextVar[Sample | None] = ContextVar("coresched_gate_sample", default=None)


def sample_in_scope() -> Sample | None:
    """The gate's sample that was entered last in this thread or task, or in the task that began this one.

    One that was left, from wherever that was, is in no scope any more.
    """
    sample = _sample.get()
    while sample is not None and sample._inner is None:
        sample = sample._outer
    return sample


class Block(ABC, Generic[Inner]):
    """A block at home, entered and left from here. Each is entered once."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._inner: Inner | None = None

    @abstractmethod
    def _make(self) -> Inner:
        """The block at home. Raises what is wrong with it."""

    def _entered(self, inner: Inner) -> None:
        """In the context of whoever entered."""

    def _left(self) -> None:
        """The same, before the block is left at home."""

    async def _enter(self, inner: Any) -> Inner:
        entered: Inner = await inner.__aenter__()
        return entered

    async def _exit(self, inner: Any, kind: type[BaseException] | None) -> None:
        await inner.__aexit__(kind, None, None)

    def _entering(self) -> Call[Inner]:
        inner = self._make()
        return self._home.call(self._enter(inner), undo=lambda: self._exit(inner, asyncio.CancelledError))

    def _leaving(self, kind: type[BaseException] | None) -> Any:
        inner, self._inner = self._inner, None
        if inner is None:
            return None
        self._left()
        if kind is not None and not issubclass(kind, Exception):
            kind = asyncio.CancelledError  # at home it can be seen through, whatever interrupted it here
        try:
            return self._home.call(self._exit(inner, kind))
        except BatchClosedError:
            return None  # there is nothing left to end

    def __enter__(self: Self) -> Self:
        self._inner = self._entering().result()
        self._entered(self._inner)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leaving = self._leaving(kind)
        if leaving is not None:
            leaving.result()

    async def __aenter__(self: Self) -> Self:
        self._inner = await self._entering().outcome()
        self._entered(self._inner)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leaving = self._leaving(kind)
        if leaving is not None and kind is not GeneratorExit:  # in which nothing can be awaited
            await leaving.outcome()


class Turn(TurnFace, Block[Any]):
    """One model call: `worker` is where to send it, `headers` what to send along.

    A block that raises or is cancelled is a failed turn; the sample may try another.
    """

    def __init__(self, home: Home, sample: AtHome, exclude: Collection[str]) -> None:
        TurnFace.__init__(self, sample.id, NOT_RECORDED.turn(sample.id))  # the block at home records
        Block.__init__(self, home)
        self._sample = sample
        self._exclude = checked_exclude(exclude)

    def usage(self, *, prompt_tokens: int, cached_tokens: int | None = None, output_tokens: int) -> None:
        """As of a turn of `coresched.Batch`."""
        super().usage(prompt_tokens=prompt_tokens, cached_tokens=cached_tokens, output_tokens=output_tokens)
        if self._inner is not None:
            self._inner.usage(
                prompt_tokens=prompt_tokens, cached_tokens=cached_tokens, output_tokens=output_tokens
            )

    def _make(self) -> Any:
        return self._sample.inference(self._exclude)

    def _entered(self, inner: Any) -> None:
        self._opened(inner.worker)

    def _left(self) -> None:
        self._closed()


class Stage(Block[Any]):
    """One environment stage: entering waits for a slot, the block is the job.

    `queue_s` is the wait in seconds, to be added to timeouts whose clock ran meanwhile.
    """

    def __init__(self, home: Home, sample: Sample, at_home: AtHome, max_s: float | None) -> None:
        super().__init__(home)
        self._sample = sample
        self._at_home = at_home
        self._max_s = None if max_s is None else check_positive(max_s, "max_s")
        self.queue_s = 0.0

    def _make(self) -> Any:
        return self._at_home.environment(self._max_s)

    def _entered(self, inner: Any) -> None:
        self.queue_s = inner.queue_s
        self._sample.environment_queue_s += self.queue_s


class Resident(Block[Any]):
    """A sandbox that lives: entering waits for a resident slot, held until the block or the sample ends.

    `queue_s` is the wait in seconds. Turns and stages may be inside.
    """

    def __init__(self, home: Home, sample: Sample, at_home: AtHome) -> None:
        super().__init__(home)
        self._sample = sample
        self._at_home = at_home
        self.queue_s = 0.0

    def _make(self) -> Any:
        return self._at_home.resident()

    def _entered(self, inner: Any) -> None:
        self.queue_s = inner.queue_s
        self._sample.resident_wait_s += self.queue_s


class Sample(Block[Any]):
    """One sample: entering waits for admission; its slot is held until the block ends, however it ends."""

    def __init__(self, home: Home, sample: AtHome) -> None:
        super().__init__(home)
        self._at_home = sample
        self._outer: Sample | None = None
        self._began = 0.0
        self.id = sample.id
        """Its trajectory label."""
        self.admission_wait_s = 0.0
        """Seconds from entering the block to the admission."""
        self.environment_queue_s = 0.0
        """Seconds that its environment stages waited for slots, all together so far."""
        self.resident_wait_s = 0.0
        """The same for its resident slots."""

    def inference(self, exclude: Collection[str] = ()) -> Turn:
        """The next model call; `exclude` names workers not to use for it.

        Entering raises TransitionError while a stage is open, LookupError if `exclude` names an unknown
        worker or all.
        """
        return Turn(self._home, self._at_home, exclude)

    def environment(self, max_s: float | None = None) -> Stage:
        """The next environment stage; entering it waits. Raises TransitionError while a stage is open.

        `max_s` is the longest that the stage may hold its slot, in seconds: then the slot goes to the next,
        and leaving the block raises LeaseExpiredError unless the block raised.
        """
        return Stage(self._home, self, self._at_home, max_s)

    def resident(self) -> Resident:
        """A resident slot, for a sandbox that lives as long as the block; entering it waits.

        Between stages, one at a time: TransitionError while a stage is open or such a slot is held.
        """
        return Resident(self._home, self, self._at_home)

    def _make(self) -> Any:
        self._began = time.monotonic()
        return self._at_home

    def _entered(self, inner: Any) -> None:
        self.admission_wait_s = time.monotonic() - self._began
        self._outer = _sample.get()
        _sample.set(self)

    def _left(self) -> None:
        if _sample.get() is self:
            _sample.set(self._outer)
