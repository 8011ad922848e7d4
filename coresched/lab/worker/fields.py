"""Fields of a request's JSON body, read one by one so that each mistake is named."""

from collections.abc import Sequence
from typing import Any, Final, NoReturn

import msgspec

from coresched.lab.worker.refusal import RefusedError

_LARGEST: Final = 2**63 - 1


def shown(value: object) -> str:
    """A value of a client for a message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


class Fields:
    """One JSON object. ``where`` is its place in the body; a field that is null counts as absent.

    Each method raises RefusedError naming the field, the value and the fix.
    """

    def __init__(self, values: object, where: str = "") -> None:
        self.where = where
        if not isinstance(values, dict):
            raise RefusedError(
                f"{where or 'the body'} must be a JSON object, got {shown(values)}", field=where or None
            )
        self._values: dict[str, Any] = values

    def name(self, field: str) -> str:
        return f"{self.where}.{field}" if self.where else field

    def only(self, *fields: str) -> None:
        """Refuse a field that is none of these."""
        for field in self._values:
            if field not in fields:
                name = self.name(field)
                raise RefusedError(f"{name} is no field here; use {' and '.join(fields)}", field=name)

    def raw(self, field: str) -> Any:
        return self._values.get(field)

    def refuse(self, field: str, wanted: str) -> NoReturn:
        name = self.name(field)
        got = f"got {shown(self._values[field])}" if field in self._values else "but it is missing"
        raise RefusedError(f"{name} must be {wanted}, {got}", field=name)

    def text(self, field: str) -> str | None:
        value = self.raw(field)
        if value is not None and not isinstance(value, str):
            self.refuse(field, "a string")
        return value

    def flag(self, field: str) -> bool:
        value = self.raw(field)
        if value is not None and not isinstance(value, bool):
            self.refuse(field, "true or false")
        return bool(value)

    def integer(self, field: str, least: int) -> int | None:
        value = self.raw(field)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= _LARGEST:
            self.refuse(field, f"an integer of at least {least}")
        return int(value)

    def require_one(self, field: str) -> None:
        """Refuse a number of answers other than 1."""
        if self.raw(field) not in (None, 1):
            self.refuse(field, "1, as this worker gives one answer to a request")

    def object(self, field: str) -> "Fields":
        """A field that is an object; an absent one is empty."""
        value = self.raw(field)
        return Fields({} if value is None else value, self.name(field))

    def items(self, field: str, wanted: str) -> Sequence[Any]:
        """A field that is a list with something in it."""
        value = self.raw(field)
        if not isinstance(value, list) or not value:
            self.refuse(field, wanted)
        return value

    def token_ids(self, field: str) -> list[int]:
        ids = self.items(field, "a list of token ids")
        for place, token in enumerate(ids):
            if type(token) is not int or not 0 <= token <= _LARGEST:
                name = f"{self.name(field)}[{place}]"
                raise RefusedError(f"{name} must be a token id of at least 0, got {shown(token)}", field=name)
        return list(ids)


def read_body(body: bytes) -> Fields:
    try:
        return Fields(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(f"the body must be JSON: {error}") from None
