"""What an answer says of its tokens, told to its turn for the batch's recording."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from coresched.client.gate import Turn
from coresched.recording.usage import AnswerReader, Usage

logger = logging.getLogger(__name__)


def record_usage(turn: Turn, usage: Usage) -> None:
    """Tell an open turn the counts of its answer.

    An answer without a prompt's or an output's count tells nothing. Counts that cannot be are left out, with
    a warning: the answer is good all the same.
    """
    if usage.prompt_tokens is None or usage.output_tokens is None:
        return
    try:
        turn.usage(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
        )
    except ValueError as error:
        logger.warning("coresched: the usage of an answer to %s is not recorded: %s", turn.label, error)


def usage_of_body(content_type: str, body: bytes) -> Usage:
    """The usage in an answer's whole body, of its last event that has one if it was streamed."""
    reader = AnswerReader(content_type)
    reader.feed(body)
    return reader.usage()


def usage_of_answer(answer: Any) -> Usage:
    """The usage in an answer that a client has parsed, into objects or mappings.

    Chat completions and the responses API name the counts differently.
    """
    usage = _field(answer, "usage")
    details = _field(usage, "prompt_tokens_details") or _field(usage, "input_tokens_details")
    return Usage(
        prompt_tokens=_count(usage, "prompt_tokens", "input_tokens"),
        cached_tokens=_count(details, "cached_tokens"),
        output_tokens=_count(usage, "completion_tokens", "output_tokens"),
    )


def _count(holder: Any, *names: str) -> int | None:
    return next((found for name in names if isinstance(found := _field(holder, name), int)), None)


def _field(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
