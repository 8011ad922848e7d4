"""What one request to the model takes along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from coresched.client.gate import Turn
from coresched.errors import InputError


def sends_headers(model: type) -> bool:
    """Whether the class's requests take headers and an address per call: those through litellm do."""
    return any(base.__module__ == "minisweagent.models.litellm_model" for base in model.__mro__)


def call_arguments(turn: Turn, model_kwargs: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` for this call, with the trajectory's label in its headers and the turn's worker as its address.

    litellm's own retries are off unless the configuration has some, since their back-off is no inference:
    mini-swe-agent tries again by itself, and each attempt is a turn.
    """
    together = {**model_kwargs, **given}
    headers = {**(together.get("extra_headers") or {}), **turn.headers}
    arguments = {**given, "extra_headers": headers}
    if "max_retries" not in together and "num_retries" not in together:
        arguments["max_retries"] = 0
    if turn.worker is not None:
        arguments["api_base"] = address(turn.worker, together.get("api_base"))
    return arguments


def address(worker: str, api_base: str | None) -> str:
    """`worker` with the path of the configured `api_base`, whose host stands for all workers; else /v1."""
    parts = urlsplit(worker)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InputError(
            f"worker {worker!r} must be a URL such as 'http://10.0.0.1:30000' to be sent to; name it so in "
            "CORESCHED_WORKERS, or in `coresched serve --worker`"
        )
    path = "/v1" if not api_base else urlsplit(api_base).path
    return worker.rstrip("/") + path.rstrip("/")
