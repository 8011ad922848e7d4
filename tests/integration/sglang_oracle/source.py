"""Single definitions compiled, unedited, from a file that cannot be imported whole."""

from __future__ import annotations
import __future__

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Any


class MissingDefinition(Exception):
    """The engine's file no longer defines what the oracle calls."""


def _kept(node: ast.ClassDef, methods: Sequence[str]) -> ast.ClassDef:
    """The class with these methods only: its decorator and fields need the rest of the engine."""
    found = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    if absent := [name for name in methods if name not in found]:
        raise MissingDefinition(f"class {node.name} has no {', '.join(absent)} any more")
    kept = copy.copy(node)
    kept.body = [found[name] for name in methods]
    kept.decorator_list = []
    return kept


def compile_definitions(
    text: str,
    filename: str,
    *,
    names: Sequence[str] = (),
    methods: Mapping[str, Sequence[str]] | None = None,
    surroundings: Mapping[str, Any],
) -> dict[str, Any]:
    """Run the file's top-level ``names`` whole, and of its classes the ``methods``, in ``surroundings``.

    Returns the namespace. Raises MissingDefinition naming what the file no longer has.
    """
    tops: dict[str, ast.stmt] = {}
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            tops[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            tops[node.targets[0].id] = node
    methods = methods or {}
    if absent := [name for name in (*names, *methods) if name not in tops]:
        raise MissingDefinition(f"{filename} has no {', '.join(absent)} any more")
    body = [tops[name] for name in names]
    for name, wanted in methods.items():
        node = tops[name]
        if not isinstance(node, ast.ClassDef):
            raise MissingDefinition(f"{name} of {filename} is no class any more")
        body.append(_kept(node, wanted))
    module = ast.fix_missing_locations(ast.Module(body=body, type_ignores=[]))
    flags = __future__.annotations.compiler_flag  # their annotations name classes that are not loaded
    namespace: dict[str, Any] = {"__name__": __name__, **surroundings}
    exec(compile(module, filename, "exec", flags=flags, dont_inherit=True), namespace)
    return namespace
