"""Python values as engines print them into their logs and metrics."""

import ast
from math import isfinite

LITERAL = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,(){}\[\]'"]+"""
"""A quoted text, or a bare word or number. A value that starts with a bracket is none."""

WORDS = {"None": None, "True": True, "False": False}
LONGEST = 4096


def literal(text: str) -> object:
    """The value: a number, a text, True, False or None; any other word as it stands."""
    if len(text) > LONGEST:
        return None
    if text in WORDS:
        return WORDS[text]
    if text[:1] in "'\"":
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text[1:-1]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    return number if isfinite(number) else text
