"""Says in one sentence why a line is no trajectory: the field's path, its value and what it must be.

Runs only after a line was refused, so it may decode the line again at leisure.
"""

import json
import re

import msgspec

from coresched.errors import InputError
from coresched.trajectory.refusal import RULES, shown
from coresched.trajectory.schema import Trajectory

_WHERE = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]")
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}

_HINT = "; of a recording, `coresched trace import` makes a trace"


def explain(line: bytes, error: Exception) -> str:
    """One sentence for the error that decoding `line` as a Trajectory raised."""
    try:
        text = line.decode()
    except UnicodeDecodeError as bad:
        for magic, extension in _MAGIC.items():
            if line.startswith(magic):
                return f"this is compressed data; let the file name end in {extension}"
        return f"byte 0x{line[bad.start]:02x} at column {bad.start + 1} is not UTF-8; save the file as UTF-8"
    try:
        # Python refuses to convert thousands of digits; the first sixty are more than is shown.
        data = json.loads(text.rstrip(), parse_int=lambda digits: int(digits[:60]))
    except RecursionError:
        return "the JSON is nested too deeply; a trajectory needs five levels"
    except json.JSONDecodeError as bad:
        what = bad.msg[0].lower() + bad.msg[1:]
        hint = _HINT if bad.pos >= len(text.rstrip()) else ""  # a document over several lines, perhaps
        return f"broken JSON at column {bad.pos + 1}: {what}; every line must be one whole JSON object{hint}"
    if not isinstance(error, msgspec.ValidationError):
        # Python's reader is the more lenient one: it takes NaN and Infinity, which JSON does not have.
        try:
            msgspec.convert(data, Trajectory)
        except msgspec.ValidationError as refused:
            error = refused
        else:
            return f"broken JSON: {error}; every line must be one whole JSON object"
    return _explain_value(data, error)


def _explain_value(data: object, error: msgspec.ValidationError) -> str:
    match = _WHERE.fullmatch(str(error))
    assert match is not None  # the pattern takes any text
    what, path = match["what"], match["path"] or ""
    inside = f"{path.lstrip('.')}." if path else ""
    if isinstance(error.__cause__, InputError):
        return f"{inside}{error.__cause__}"
    missing = re.fullmatch(r"Object missing required field `(\w+)`", what)
    if missing:
        other = not path and isinstance(data, dict) and not data.keys() & {"initial_prompt_tokens", "turns"}
        hint = _HINT if other else ""
        return f"{inside}{missing[1]} is missing; add it ({RULES[missing[1]]}){hint}"
    if not path:
        return (
            f"the line is {shown(data)}; it must be one JSON object with id, initial_prompt_tokens and turns"
        )
    field = "turns[]" if path.endswith("]") else path.rpartition(".")[2]
    if field not in RULES or "[...]" in path:
        return f"{path.lstrip('.')}: {what}"
    return f"{path.lstrip('.')} is {shown(_value_at(data, path))}; it must be {RULES[field]}"


def _value_at(data: object, path: str) -> object:
    for step in _STEP.finditer(path):
        if isinstance(data, dict):
            data = data[step["name"]]
        elif isinstance(data, list):
            data = data[int(step["index"])]
    return data
