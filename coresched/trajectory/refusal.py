"""The sentences in which a trajectory is refused: what each field must be, and how a wrong value is shown."""

import json

from coresched.errors import InputError

MAX_TOKENS = 1_000_000_000
MAX_SECONDS = 1e9  # 31 years; a Unix time in the place of a duration is caught by it
MAX_NAME_BYTES = 512

_COUNT = f"an integer >= 0 and <= {MAX_TOKENS:,}"
_SECONDS = f"a number of seconds from 0 to {MAX_SECONDS:,.0f}"
_NAME = f"a text of 1 to {MAX_NAME_BYTES} bytes in UTF-8"

# What a field must be, by the name of the field; "turns[]" is an element of the array.
RULES = {
    "id": _NAME,
    "initial_prompt_tokens": _COUNT,
    "shared_prefix_tokens": _COUNT,
    "group": f"{_NAME}, or absent",
    "turns": "an array of at least one turn",
    "turns[]": "an object with output_tokens",
    "source": "a text, or absent",
    "license": "a text, or absent",
    "meta": "an object",
    "output_tokens": f"an integer >= 1 and <= {MAX_TOKENS:,}",
    "kept_tokens": "an integer from 0 to output_tokens, or absent",
    "infer_s": f"{_SECONDS}, or null",
    "env": "an object, or null in the last turn",
    "duration_s": f"{_SECONDS}, or null",
    "response_tokens": _COUNT,
    "n_calls": _COUNT,
    "kind": "a text, or absent",
    "duration_quality": "exact, derived, estimated or absent",
}


def shown(value: object, limit: int = 60) -> str:
    """The value as JSON on one line, at most `limit` characters."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    text = text.encode(errors="backslashreplace").decode()  # half a surrogate pair cannot be printed
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def refusal(field: str, value: object, rule: str | None = None) -> InputError:
    """The error for one field, for example `output_tokens is -5; it must be an integer >= 1`."""
    return InputError(f"{field} is {shown(value)}; it must be {rule or RULES[field]}")
