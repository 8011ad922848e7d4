"""One model call, for agent and user alike."""

from __future__ import annotations

from typing import Any

import httpx
import litellm
from litellm import completion

litellm.client_session = httpx.Client(limits=httpx.Limits(max_keepalive_connections=5, max_connections=10))


def generate(
    model: str,
    messages: list[dict[str, Any]],
    tools: list[Any] | None = None,
    tool_choice: str | None = None,
    call_name: str | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """The model's message."""
    kwargs.setdefault("num_retries", 1)
    response = completion(model=model, messages=messages, tools=tools, tool_choice=tool_choice, **kwargs)
    message: dict[str, Any] = response.choices[0].message.model_dump(exclude_none=True)
    return message
