"""Whose request it is: a label header, else the API key of its own that a task has, else its prompt."""

from __future__ import annotations

from typing import Literal, NamedTuple

from multidict import CIMultiDictProxy

from coresched.core.checks import check_label
from coresched.gateway.labels import LABEL_FIELDS, body_label, header_label
from coresched.gateway.refusal import RefusedError, shown

_SCHEME = "bearer "

LabelFrom = Literal["key", "prompt"]
"""What names a trajectory without a label header: the key in `Authorization: Bearer KEY`, or how its prompt
begins, for a harness that sends one key for all tasks."""

LONGEST_LABEL_BYTES = 496
"""Less than a sample id may have, so that a later life of the label has an id, too."""


class Identity(NamedTuple):
    """A trajectory label. `from_key`: it is what stood in for an API key, so it is none to pass on."""

    label: str
    from_key: bool


def request_label(headers: CIMultiDictProxy[str], path: str, body: bytes, label_from: LabelFrom) -> Identity:
    """The label of an LLM request. Raises RefusedError (400) for what is there and is none."""
    label = header_label(headers)
    if label is not None:
        return Identity(_short(label, "the label's header"), from_key=False)
    key = _key(headers) if label_from == "key" else ""
    if key:
        return Identity(_short(_checked(key), "the key in header Authorization"), from_key=True)
    return Identity(_short(body_label(path, body, LABEL_FIELDS), "the label in the body"), from_key=False)


def _key(headers: CIMultiDictProxy[str]) -> str:
    value = headers.get("Authorization", "")
    return value[len(_SCHEME) :].strip() if value[: len(_SCHEME)].lower() == _SCHEME else ""


def _checked(key: str) -> str:
    try:
        if not key.isprintable():
            raise ValueError("it has control characters or bytes that are no UTF-8")
        return check_label(key, "it")
    except ValueError as error:
        raise RefusedError(
            400,
            "invalid_label",
            f"the key in header Authorization is the trajectory's label, and {shown(key)} is none: {error}; "
            "send a short name of the task as its key, or a label in header x-smg-routing-key",
            param="Authorization",
        ) from None


def _short(label: str, what: str) -> str:
    if len(label.encode()) > LONGEST_LABEL_BYTES:
        raise RefusedError(
            400,
            "invalid_label",
            f"{what} must have at most {LONGEST_LABEL_BYTES} bytes, got {shown(label)}; send a shorter one",
        )
    return label
