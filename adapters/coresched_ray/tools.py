"""The stages of a rollout that lives in Ray: its tools inside environment slots, its model calls as turns.

A tool is anything of the shape of verl's BaseTool, a model client anything with `async generate(...)`, as the
server manager that verl gives to its agent loops. A sample of the batch is in one stage at a time, while a
rollout is less tidy: the tool calls of one message run at once, and a tool may call a model. So the slot is
held while any tool of the sample works, and a model call beside a tool, or beside another one, is no turn of
its own.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from coresched_harness.held import GateFailure

from coresched.client.gate import sample_in_scope

Wrapped = TypeVar("Wrapped")


class Sample(Protocol):
    """A sample of a gate, or of the batch that `coresched_ray.connect` gives."""

    def environment(self) -> AbstractAsyncContextManager[Any]: ...

    def inference(self) -> AbstractAsyncContextManager[Any]: ...


SampleOf = Callable[[], Sample | None]
"""The sample of the task that calls it, None outside of any."""


def gated_tool(tool: Wrapped, *, sample: SampleOf = sample_in_scope) -> Wrapped:
    """`tool`, whose `execute` runs inside an environment slot of the sample in whose task it is called.

    `tool` is a class, of which a subclass of that name is returned, or an object, which itself is. `sample`
    is the gate's, unless given. What `create`, `calc_reward` and `release` do takes no slot.

    Raises TypeError for a tool without `execute` or one that is gated already. Its `execute` raises
    GateFailure outside of a sample, and when the batch is lost or closed: no Exception, since agent loops
    take one of those for what the tool has to say to the model.
    """

    def around(execute: Any) -> Any:
        @functools.wraps(execute)
        async def in_a_slot(*args: Any, **kwargs: Any) -> Any:
            async with _stages_of(sample, "execute").work():
                return await execute(*args, **kwargs)

        return in_a_slot

    return _replaced(tool, "execute", around)


def gated_model(client: Wrapped, *, sample: SampleOf = sample_in_scope) -> Wrapped:
    """`client`, whose `generate` is a turn of the sample in whose task it is called; as with `gated_tool`.

    Where its request goes stays the client's own choice. The policy CAAS goes by these turns.
    """

    def around(generate: Any) -> Any:
        @functools.wraps(generate)
        async def as_a_turn(*args: Any, **kwargs: Any) -> Any:
            async with _stages_of(sample, "generate").turn():
                return await generate(*args, **kwargs)

        return as_a_turn

    return _replaced(client, "generate", around)


class _Stages:
    """The open stage of one sample, for tasks of one event loop."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._working = 0
        self._stage: AbstractAsyncContextManager[Any] | None = None
        self._wanted = False  # a stage is open or waited for
        self._in_turn = False
        self._lock = asyncio.Lock()  # held throughout a wait for the slot: who comes meanwhile joins

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """The slot is held in this block, with whoever else of the sample works."""
        async with self._lock:
            if self._stage is None:
                self._wanted = True
                try:
                    stage = self._sample.environment()
                    await stage.__aenter__()
                except BaseException as error:
                    self._wanted = False
                    raise _failure(error) from error
                self._stage = stage
            self._working += 1
        try:
            yield
        except BaseException as error:
            await self._end_work(type(error))
            raise
        await self._end_work(None)

    async def _end_work(self, kind: type[BaseException] | None) -> None:
        self._working -= 1  # first, as the wait for the lock may be cancelled: who holds it sees to the rest
        async with self._lock:
            stage = self._stage
            if self._working or stage is None:
                return
            self._stage = None
            try:
                await stage.__aexit__(kind, None, None)
            except BaseException as error:
                raise _failure(error) from error
            finally:
                self._wanted = False

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """This block is a turn, unless the sample is in a stage already."""
        if self._wanted or self._in_turn:
            yield
            return
        self._in_turn = True
        try:
            turn = self._sample.inference()
            try:
                await turn.__aenter__()
            except BaseException as error:
                raise _failure(error) from error
            try:
                yield
            except BaseException as error:
                await turn.__aexit__(type(error), None, None)
                raise
            try:
                await turn.__aexit__(None, None, None)
            except BaseException as error:
                raise _failure(error) from error
        finally:
            self._in_turn = False


_stages: WeakKeyDictionary[Sample, _Stages] = WeakKeyDictionary()


def _stages_of(sample: SampleOf, method: str) -> _Stages:
    found = sample()
    if found is None:
        raise GateFailure(
            f"{method} was called outside of any sample of the batch; enter one around the rollout, with "
            "`async with gate.sample(id)`"
        )
    stages = _stages.get(found)
    if stages is None:
        stages = _stages[found] = _Stages(found)
    return stages


def _failure(error: BaseException) -> BaseException:
    """As what an error of the batch itself goes on; a cancellation stays one."""
    return GateFailure(str(error)) if isinstance(error, Exception) else error


def _replaced(wrapped: Wrapped, method: str, around: Callable[[Any], Any]) -> Wrapped:
    own: Any = getattr(wrapped, method, None)
    if not callable(own):
        raise TypeError(f"{wrapped!r} has no method {method}; give what the rollout calls it on")
    if hasattr(own, "coresched_gated"):
        raise TypeError(f"{wrapped!r} is gated already; leave one of the two out")
    replacement = around(own)
    replacement.coresched_gated = True
    if isinstance(wrapped, type):
        names = {method: replacement, "__module__": wrapped.__module__, "__doc__": wrapped.__doc__}
        subclass: Any = type(wrapped.__name__, (wrapped,), names)
        return subclass  # type: ignore[no-any-return]
    setattr(wrapped, method, replacement)
    return wrapped
