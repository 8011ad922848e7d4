"""The part of litellm that tau2 uses: `openai/...` models by OpenAI's client over `client_session`."""

from __future__ import annotations

from typing import Any

import httpx
import openai

client_session: httpx.Client | None = None


def get_llm_provider(
    model: str,
    custom_llm_provider: str | None = None,
    api_base: str | None = None,
    api_key: str | None = None,
) -> tuple[str, str, str | None, str | None]:
    """Model, provider, and two more that are not used here."""
    provider, _, name = model.partition("/")
    return name, custom_llm_provider or provider, api_key, api_base


def completion(
    model: str,
    messages: list[Any],
    api_base: str | None = None,
    api_key: str | None = None,
    num_retries: int = 0,
    extra_headers: dict[str, str] | None = None,
    **options: Any,
) -> Any:
    """A chat completion. Providers but `openai` have an HTTP client of their own, as litellm's have."""
    name, provider, _, _ = get_llm_provider(model)
    session = client_session if provider == "openai" else httpx.Client()
    client = openai.OpenAI(base_url=api_base, api_key=api_key, http_client=session, max_retries=num_retries)
    given = {key: value for key, value in options.items() if value is not None}
    return client.chat.completions.create(model=name, messages=messages, extra_headers=extra_headers, **given)
