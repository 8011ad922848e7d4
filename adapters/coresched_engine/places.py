"""Places of an engine that an adapter enters: whether the engine at hand has them in the expected form."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """A function or method of an engine and its first parameters; what follows them is passed on unread."""

    path: str
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}({', '.join(self.parameters)}, ...)"

    def differences(self) -> Iterator[str]:
        """What is different in the engine at hand, a phrase each. Imports what it looks at."""
        function = resolve(self.path)
        if function is None:
            yield f"{self.path} does not exist"
            return
        try:
            names = tuple(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            yield f"{self.path} is no function with a signature"
            return
        if names[: len(self.parameters)] != self.parameters:
            yield f"{self.path} takes ({', '.join(names)}), not ({', '.join(self.parameters)}, ...)"


def resolve(path: str) -> Any:
    """What a dotted path names, or None."""
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError):
        return None


def names_in_init(path: str) -> frozenset[str]:
    """The names that the ``__init__`` of the class at ``path`` uses; empty if there is no such class."""
    code = getattr(getattr(resolve(path), "__init__", None), "__code__", None)
    return frozenset(getattr(code, "co_names", ()))
