"""A refused call: a status code, the field at fault and one sentence."""

from __future__ import annotations

from typing import NoReturn

import grpc

from coresched.core.checks import check_label


class RefusedError(Exception):
    """The call cannot be carried out; nothing was changed.

    `field` is the request's field at fault, or empty; a message about a field begins with its name.
    """

    def __init__(self, code: grpc.StatusCode, field: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.field = field
        self.message = message


def refuse_argument(field: str, error: ValueError) -> NoReturn:
    """Refuse a field that the core did not accept; its sentences begin with the field's name."""
    raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, field, str(error)) from None


def checked_label(field: str, text: str) -> str:
    """The label or worker name. Raises RefusedError unless it has 1 to 512 bytes of UTF-8."""
    try:
        return check_label(text, field)
    except ValueError as error:
        refuse_argument(field, error)


def shown(text: str) -> str:
    """Text of a client for a message: quoted, and cut short so that the status fits into a header."""
    return repr(text) if len(text) <= 60 else repr(text[:60] + "...")
