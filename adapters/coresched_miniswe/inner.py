"""The class behind a gated one: found by name, import path or itself, and derived from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coresched.errors import InputError


def inner_of(inner_class: str | type, face: type, find: Callable[[str], type], field: str) -> type:
    """What `inner_class` stands for. Raises InputError for `face` itself, and what `find` raises."""
    if not isinstance(inner_class, (str, type)):
        raise InputError(f"{field} must be a name or an import path of a class, got {inner_class!r}")
    inner = find(inner_class) if isinstance(inner_class, str) else inner_class
    if not isinstance(inner, type):
        raise InputError(f"{field} must name a class, got {inner_class!r}")
    if issubclass(inner, face):
        raise InputError(f"{field} must name the class behind {face.__name__}, got {inner_class!r}")
    return inner


def class_name(inner_class: str | type) -> str:
    """As it can be written into a configuration."""
    if isinstance(inner_class, str):
        return inner_class
    return f"{inner_class.__module__}.{inner_class.__qualname__}"


def subclass(face: type, inner: type) -> type:
    """`face` in front of `inner`, under the name by which a configuration asks for `face`."""
    named: dict[str, Any] = {"__module__": "coresched_miniswe", "__doc__": face.__doc__}
    return type(face.__name__, (face, inner), named)
