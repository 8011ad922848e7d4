"""Whose request it is: the trajectory label of one of Serve's pending requests."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

from coresched.core.checks import check_label
from coresched_ray.options import RouterOptions


def label_of(request: Any, options: RouterOptions) -> str | None:
    """The keyword argument's value, else the header's, else Serve's session id, else None.

    `request` is a `PendingRequest`. Raises TypeError or ValueError, which name where it stood, for what
    stands there and is no label.
    """
    if options.label_argument is not None:
        value = request.kwargs.get(options.label_argument)
        if value is not None:
            return check_label(value, f"argument {options.label_argument!r}")
    if options.label_header is not None:
        value = _header(request, options.label_header)
        if value is not None:
            return check_label(value, f"header {options.label_header}")
    session = request.metadata.session_id
    return check_label(session, "session_id") if session else None


def _header(request: Any, name: str) -> str | None:
    """Of the HTTP request that the proxy hands on, or of an argument that has headers, as serve.llm's has."""
    wanted = name.lower()
    if request.metadata.is_http_request:
        return _proxied(request.args, wanted)
    for argument in (*request.args, *request.kwargs.values()):
        headers = getattr(argument, "headers", None)
        if isinstance(headers, Mapping):
            for key, value in headers.items():
                if isinstance(key, str) and key.lower() == wanted:
                    return str(value).strip()
    return None


def _proxied(arguments: list[Any], wanted: str) -> str | None:
    """What the proxy pickled a moment ago in this process; unpickled only if the name is in its bytes."""
    name = wanted.encode()
    for pickled in arguments[:1]:
        if isinstance(pickled, bytes) and name in pickled.lower():
            for key, value in pickle.loads(pickled).asgi_scope["headers"]:
                if key.lower() == name:
                    return str(value.decode("utf-8", "surrogateescape")).strip()
    return None
