"""Each request to a model carries the label of its sample, and is a turn of it unless another stage is open.

The hook of inspect for this, `on_before_model_generate`, comes before its cache is looked up, whose key holds
the headers: a label is used once, so nothing would ever be found there again. It tells of no end of a failed
attempt either. Hence the provider's own `generate`, which is called for each attempt, after the cache.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from coresched.client.turn import ROUTING_HEADER, SESSION_HEADER
from coresched.recording.usage import Usage
from coresched_inspect.samples import GatedSample, sample_of_context
from coresched_inspect.stages import call_in_scope, model_call

logger = logging.getLogger(__name__)

_OURS = "_coresched_turns"


def with_turns(original: Callable[..., Awaitable[Any]]) -> Any:
    """inspect's `Model.generate`, which sees to it that the provider's `generate` is ours."""

    @functools.wraps(original)
    async def generate(model: Any, *args: Any, **options: Any) -> Any:
        if sample_of_context() is not None and not hasattr(model.api.generate, _OURS):
            model.api.generate = turns_of(model.api.generate)
        return await original(model, *args, **options)

    return generate


def turns_of(original: Callable[..., Awaitable[Any]]) -> Any:
    """A provider's `generate`, a turn at each call: failed attempts and the waits between them are none."""

    @functools.wraps(original)
    async def generate(input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
        gated = sample_of_context()
        if gated is None:
            return await original(input=input, tools=tools, tool_choice=tool_choice, config=config)
        config = labelled(config, gated.sample.id)
        async with model_call(call_in_scope()):
            return await _turn(gated, original, input, tools, tool_choice, config)

    setattr(generate, _OURS, True)
    return generate


def labelled(config: Any, label: str) -> Any:
    """A copy of a request's configuration whose headers carry the label; those that it has stay."""
    headers = {ROUTING_HEADER: label, SESSION_HEADER: label} | (config.extra_headers or {})
    return config.model_copy(update={"extra_headers": headers})


async def _turn(
    gated: GatedSample,
    original: Callable[..., Awaitable[Any]],
    input: Any,
    tools: Any,
    choice: Any,
    config: Any,
) -> Any:
    turn = await gated.stages.begin_turn()
    if turn is not None and turn.worker is not None:
        _warn_of_workers(turn.worker)
    kind: type[BaseException] | None = None
    usage = Usage()
    try:
        result = await original(input=input, tools=tools, tool_choice=choice, config=config)
        output = result[0] if isinstance(result, tuple) else result
        if isinstance(output, Exception):  # a refusal that inspect raises later
            kind = type(output)
        else:
            usage = usage_of(output)
        return result
    except BaseException as error:
        kind = type(error)
        raise
    finally:
        await gated.stages.end_turn(turn, kind, usage)


def usage_of(output: Any) -> Usage:
    """The counts of a ModelOutput. inspect leaves cached tokens out of those of the prompt."""
    usage = output.usage
    if usage is None:
        return Usage()
    cached, written = usage.input_tokens_cache_read, usage.input_tokens_cache_write
    prompt = usage.input_tokens + (cached or 0) + (written or 0)
    return Usage(prompt_tokens=prompt or None, cached_tokens=cached, output_tokens=usage.output_tokens)


@functools.cache
def _warn_of_workers(worker: str) -> None:
    logger.warning(
        "coresched: the gate routes turns to workers, such as %s, but inspect sends all requests to the "
        "model's base URL; let a `coresched gateway` be that, and the gate have no workers",
        worker,
    )
