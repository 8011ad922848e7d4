"""Reading a model's config field by field: a value that cannot be used is refused by name, never replaced.

Every refusal is one sentence that names the source, the field, the value and the fix.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from coresched.errors import InputError

MAX_DIMENSION = 1 << 24  # far above any width or head count in use; catches typos
MAX_LAYERS = 10_000
MAX_CONTEXT = 1 << 40

DTYPE_NAMES = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
    "float32": "float32",
    "float": "float32",
}


def shown(value: object, limit: int = 60) -> str:
    """The value as JSON on one line, at most `limit` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):  # a key that is no text, a cycle, too many digits
        text = f"a {type(value).__name__}"
    text = text.encode(errors="backslashreplace").decode()  # half a surrogate pair cannot be printed
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def one_line(text: str) -> str:
    """The text as it is, or as JSON where it holds what would break a line or cannot be printed."""
    return text if text.isprintable() else shown(text, limit=4096)


def is_count(value: object, minimum: int, maximum: int) -> bool:
    """Whether the value is an integer in the range; True and 1.0 are not."""
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def require_option(name: str, value: object, minimum: int, maximum: int = MAX_DIMENSION) -> int:
    """An argument that must be an integer in the range. Raises InputError naming it and its value."""
    if not is_count(value, minimum, maximum):
        raise InputError(f"{name} is {shown(value)}; it must be an integer from {minimum:,} to {maximum:,}")
    assert isinstance(value, int)
    return value


@dataclass(frozen=True)
class Fields:
    """One JSON object of a config. `source` is what the user named, `path` the object's place in it."""

    values: Mapping[str, object]
    source: str
    path: str = ""

    def refusal(self, name: str, fix: str) -> InputError:
        """The error for one field: it is missing, or its value cannot be used."""
        state = f"is {shown(self.values[name])}" if name in self.values else "is missing"
        return InputError(f"{self.source}: {self.path}{name} {state}; {fix}")

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def present(self, *names: str) -> str:
        """The spelling that is used, the first if none is. Raises InputError if several disagree."""
        used = [name for name in names if self.has(name)]
        if not used:
            return next((name for name in names if name in self.values), names[0])
        for other in used[1:]:
            if self.values[other] != self.values[used[0]]:
                raise self.refusal(other, f"{used[0]} is {shown(self.values[used[0]])}; keep one of them")
        return used[0]

    def count(self, *names: str, minimum: int = 1, maximum: int = MAX_DIMENSION) -> int:
        """A required integer in the range, under any of the names."""
        name = self.present(*names)
        value = self.values.get(name)
        if not is_count(value, minimum, maximum):
            raise self.refusal(name, f"give an integer from {minimum:,} to {maximum:,}")
        assert isinstance(value, int)
        return value

    def optional_count(self, *names: str, minimum: int = 1, maximum: int = MAX_DIMENSION) -> int | None:
        """The integer, or None where every spelling is absent or null."""
        name = self.present(*names)
        return self.count(name, minimum=minimum, maximum=maximum) if self.has(name) else None

    def product(self, factor: str, *, of: int, what: str) -> int:
        """`factor` times `of`, where `factor` may be a fraction as long as the product is a whole number."""
        value = self.values.get(factor)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_DIMENSION:
            raise self.refusal(factor, f"give a number above 0; {what} is {of:,} times it")
        result = value * of
        if result != int(result) or result > MAX_DIMENSION:
            raise self.refusal(factor, f"{what} would be {result:,}; make it a whole number")
        return int(result)

    def flag(self, name: str) -> bool:
        """A boolean; absent and null are false."""
        value = self.values.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.refusal(name, "give true or false")
        return value

    def dtype(self, *names: str) -> str | None:
        """A dtype name as both engines know it, or None where it is absent or null."""
        name = self.present(*names)
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or value not in DTYPE_NAMES:
            raise self.refusal(name, "give bfloat16, float16 or float32")
        return DTYPE_NAMES[value]

    def texts(self, name: str) -> tuple[str, ...]:
        """A required array of texts."""
        value = self.values.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refusal(name, "give an array of texts, one a layer")
        return tuple(value)

    def counts(self, name: str, minimum: int, maximum: int) -> tuple[int, ...]:
        """A required array of integers in the range."""
        value = self.values.get(name)
        if not isinstance(value, list) or not all(is_count(item, minimum, maximum) for item in value):
            raise self.refusal(name, f"give an array of integers from {minimum:,} to {maximum:,}")
        return tuple(value)

    def section(self, name: str) -> "Fields":
        """A required object inside this one."""
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise self.refusal(name, "give the object with the model's own fields")
        return Fields(value, self.source, f"{self.path}{name}.")
