"""Environment stages: the tool calls of a message, a setup script, a command that a scorer or solver runs.

And resident slots, for the sandboxes that all of these run in.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from coresched_inspect.samples import sample_of_context
from coresched_inspect.stages import Execution, call_in_scope, execution_in_scope


def gated_execution(original: Callable[..., Awaitable[Any]]) -> Any:
    """inspect's `_execute_tools_impl`: all calls of the last message, in one stage."""

    @functools.wraps(original)
    async def execute(messages: list[Any], *args: Any, **options: Any) -> Any:
        gated = sample_of_context()
        if gated is None or not getattr(messages[-1], "tool_calls", None):
            return await original(messages, *args, **options)
        async with Execution(gated.stages).work():
            return await original(messages, *args, **options)

    return execute


def followed_call(original: Callable[..., Awaitable[Any]]) -> Any:
    """inspect's `call_tool`: one of these calls, so that a model call from within it is seen as such."""

    @functools.wraps(original)
    async def call(*args: Any, **options: Any) -> Any:
        execution = execution_in_scope()
        if execution is None:
            return await original(*args, **options)
        async with execution.call():
            return await original(*args, **options)

    return call


def gated_setup(original: Callable[..., Awaitable[Any]]) -> Any:
    """inspect's `setup_sandbox_environment`, which runs the setup script of a sample."""

    @functools.wraps(original)
    async def setup(*args: Any, **options: Any) -> Any:
        gated = sample_of_context()
        if gated is None:
            return await original(*args, **options)
        async with gated.stages.work():
            return await original(*args, **options)

    return setup


def gated_sandbox(original: Callable[..., AbstractAsyncContextManager[Any]]) -> Any:
    """inspect's `sandboxenv_context`, where a sample's sandbox lives: with a resident slot if C_R is set."""

    @functools.wraps(original)
    @asynccontextmanager
    async def context(*args: Any, **options: Any) -> AsyncIterator[None]:
        gated = sample_of_context()
        async with nullcontext() if gated is None else gated.residence(), original(*args, **options):
            yield

    return context


def gated_command(original: Callable[..., Awaitable[Any]]) -> Any:
    """`exec` of inspect's proxy of a sandbox: what scorers, and solvers by themselves, run there.

    What tools run has the slot already. Commands by which inspect prepares and watches a sandbox are let
    through.
    """

    @functools.wraps(original)
    async def exec(*args: Any, **options: Any) -> Any:
        from inspect_ai._util.working import _untracked_sandbox_execs

        gated = sample_of_context()
        call = call_in_scope()
        in_slot = call is not None and not call.waits
        if gated is None or not gated.is_started or in_slot or _untracked_sandbox_execs.get():
            return await original(*args, **options)
        async with gated.stages.work():
            return await original(*args, **options)

    return exec
