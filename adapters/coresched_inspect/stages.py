"""The one environment slot of a sample: when its tools hold it, and when the model has its turn.

A sample of the batch is in one stage at a time. An eval is less tidy: calls of one message run at once, tools
call models, sub-agents call tools, agents work beside each other. Two rules settle all of it. The slot is
held while any tool of the sample works; a tool that waits for a model does not work. A model call that begins
while the slot is held, or beside another one, is no turn of its own: it only carries the label.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio

from coresched.client.gate import Sample, Stage, Turn

OffTheClock = Callable[[], AbstractContextManager[None]]
"""What a wait for the slot happens in, so that the harness's clocks stand still."""


class Stages:
    """Turns and environment stages of one sample, for tasks that run beside each other."""

    def __init__(
        self, sample: Sample, off_the_clock: OffTheClock, granted: Callable[[], None] = lambda: None
    ) -> None:
        """``granted`` is called when a stage has got its slot."""
        self._sample = sample
        self._granted = granted
        self._off_the_clock = off_the_clock
        self._working = 0
        self._stage: Stage | None = None
        self._turn: Turn | None = None
        self._wanted = False  # a stage is open or waited for
        self._slot = anyio.Lock()  # held throughout a wait for the slot: who comes meanwhile joins
        self._steps = anyio.Lock()  # one step of the sample after the other; held for no wait
        self.count = 0
        """Stages so far."""

    async def begin_work(self) -> None:
        """Have the slot, waiting for it unless the sample holds it; the sample's turn ends if one is open."""
        with self._off_the_clock():
            async with self._slot:
                if self._stage is None:
                    await self._open_stage()
                self._working += 1

    async def _open_stage(self) -> None:
        stage = self._sample.environment()
        try:
            async with self._steps:
                self._wanted = True
                await self._close_turn(None)
            await stage.__aenter__()
        except BaseException:
            self._wanted = False
            raise
        self._stage = stage
        self.count += 1
        self._granted()

    async def end_work(self, kind: type[BaseException] | None = None) -> None:
        """Work is done, failed with an error of this kind, or waits for a model; the last frees the slot."""
        with anyio.CancelScope(shield=True):
            async with self._slot:
                self._working -= 1
                stage = self._stage
                if self._working > 0 or stage is None:
                    return
                async with self._steps:
                    self._stage = None
                    try:
                        await stage.__aexit__(kind, None, None)
                    finally:
                        self._wanted = False

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """The slot is held in this block. It is waited for before the block."""
        await self.begin_work()
        try:
            yield
        except BaseException as error:
            await self.end_work(type(error))
            raise
        await self.end_work()

    async def begin_turn(self) -> Turn | None:
        """The sample's next turn; None while it holds or waits for its slot, or has a turn open."""
        async with self._steps:
            if self._wanted or self._turn is not None:
                return None
            turn = self._sample.inference()
            await turn.__aenter__()
            self._turn = turn
            return turn

    async def end_turn(
        self,
        turn: Turn | None,
        kind: type[BaseException] | None = None,
        usage: Mapping[str, int | None] | None = None,
    ) -> None:
        """The model has answered, with this usage, or failed with an error of this kind."""
        if turn is None:
            return
        with anyio.CancelScope(shield=True):
            async with self._steps:
                if self._turn is turn:  # else a stage of the sample ended it
                    record: Any = getattr(turn, "usage", None)
                    if usage is not None and record is not None:
                        record(**usage)
                    await self._close_turn(kind)

    async def close(self) -> None:
        """Give back what is open, at the end of the sample."""
        async with self._steps:
            await self._close_turn(None)
            stage, self._stage = self._stage, None
            if stage is not None:
                await stage.__aexit__(None, None, None)

    async def _close_turn(self, kind: type[BaseException] | None) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            await turn.__aexit__(kind, None, None)


class Execution:
    """The tool calls of one message: they share the slot, and hold it unless all of them wait for a model."""

    def __init__(self, stages: Stages) -> None:
        self.outer = call_in_scope()
        self._stages = stages
        self._calls: set[Call] = set()
        self._holds = False
        self._settling = anyio.Lock()

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """All of the calls; the slot is waited for before the first one."""
        await self.settle()
        token = _execution.set(self)
        try:
            yield
        except BaseException as error:
            await self._end(type(error))
            raise
        finally:
            _execution.reset(token)
        await self._end(None)

    async def _end(self, kind: type[BaseException] | None) -> None:
        if self._holds:
            self._holds = False
            await self._stages.end_work(kind)

    async def settle(self) -> None:
        """Take or give the slot, as the calls now need it; taking it may mean to wait."""
        async with self._settling:
            if self._waits():
                await self._give()
            elif not self._holds:
                await self._stages.begin_work()
                self._holds = True

    def _waits(self) -> bool:
        return bool(self._calls) and all(call.waits for call in self._calls)

    async def _give(self) -> None:
        if self._holds:
            self._holds = False
            await self._stages.end_work()

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """One call of a tool, from which model calls and other tools may follow."""
        call = Call(self)
        self._calls.add(call)
        token = _call.set(call)
        try:
            await self.settle()
            yield
        finally:
            _call.reset(token)
            call.ended = True
            self._calls.discard(call)
            with anyio.CancelScope(shield=True):
                async with self._settling:
                    if self._waits():  # those that are left
                        await self._give()


class Call:
    """A tool call under way."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.ended = False
        self.models = 0
        """Model calls under way in it."""

    @property
    def waits(self) -> bool:
        return self.models > 0

    def around(self) -> Iterator[Call]:
        """This call and those that it is a part of, from the inside out."""
        call: Call | None = self
        while call is not None:
            yield call
            call = call.execution.outer


_execution: ContextVar[Execution | None] = ContextVar("coresched_inspect_execution", default=None)
_call: ContextVar[Call | None] = ContextVar("coresched_inspect_call", default=None)


def execution_in_scope() -> Execution | None:
    """The innermost execution of a message's tool calls that this context is a part of."""
    return _execution.get()


def call_in_scope() -> Call | None:
    """The tool call that this context is a part of; one that has ended counts no more."""
    call = _call.get()
    return None if call is None or call.ended else call


@asynccontextmanager
async def model_call(call: Call | None) -> AsyncIterator[None]:
    """A model call from within tool calls, which do not work meanwhile.

    They have the slot again when the block is left, unless it was cancelled.
    """
    calls = [] if call is None else list(call.around())
    for one in calls:
        one.models += 1
    try:
        for one in calls:
            await one.execution.settle()
        yield
    except Exception:
        await _work_again(calls)
        raise
    except BaseException:
        for one in calls:
            one.models -= 1
        raise
    await _work_again(calls)


async def _work_again(calls: list[Call]) -> None:
    for one in calls:
        one.models -= 1
    for one in reversed(calls):
        await one.execution.settle()
