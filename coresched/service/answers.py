"""What makes a retry harmless: the answers given last, by the request id that the client chose."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Generic, NoReturn, TypeVar

import grpc
from google.protobuf.message import Message

from coresched.service.identity import current_tenant
from coresched.service.refusal import RefusedError, checked_label, shown

REMEMBERED_ANSWERS = 65_536
REQUEST_ID_BYTES = 128
CONTENT_BYTES = 128
"""A call up to this size is kept as it is, and its digest made if the call comes again; most never do."""

A = TypeVar("A")


class AnswerMemory(Generic[A]):
    """The last `capacity` answers; beyond that the tenant with the most loses its oldest.

    So a tenant with less than its share loses none to a busier one. Each method means the tenant of the call
    being served, unless told another: an id is unique within a tenant, and no tenant meets another's.

    A call is known by its request id and a digest of its content, so that an id used twice for different
    calls is noticed; each method takes the call or its digest. With ids of 36 characters an answer of the
    router takes about 400 bytes.
    """

    def __init__(self, capacity: int = REMEMBERED_ANSWERS) -> None:
        self._capacity = capacity
        self._size = 0
        # Plain dicts would search the places of all that was deleted for their first entry. The values are
        # plain tuples, as an object of a class takes much longer to make: kind and content, or the digest.
        self._by_tenant: dict[str, OrderedDict[str, tuple[str, bytes | str, A]]] = {}

    def find(self, request_id: str, call: Message | str, tenant: str | None = None) -> A | None:
        """The answer to this very call, or None if it is new.

        Raises RefusedError if the id is not 1 to 128 bytes of UTF-8, or belongs to another call.
        """
        if not (request_id.isascii() and 0 < len(request_id) <= REQUEST_ID_BYTES):
            _check_id(request_id)
        found = self._of(tenant).get(request_id)
        if found is None:
            return None
        kind, known, answer = found
        kept = known if isinstance(known, str) else _digest_of(kind, known)
        if kept != (call if isinstance(call, str) else digest(call)):
            refuse_other_call(request_id)
        return answer

    def keep(self, request_id: str, call: Message | str, answer: A, tenant: str | None = None) -> None:
        answers = self._of(tenant)
        if request_id not in answers:
            if self._size >= self._capacity:
                max(self._by_tenant.values(), key=len).popitem(last=False)
                self._size -= 1
            self._size += 1
        if isinstance(call, str):
            answers[request_id] = "", call, answer
        else:
            content = call.SerializeToString()  # as in a digest: no message has a map, whose order may vary
            known = content if len(content) <= CONTENT_BYTES else digest(call)
            answers[request_id] = type(call).__name__, known, answer

    def forget(self, request_id: str, answer: A) -> None:
        """Forget one answer, if it is still remembered."""
        answers = self._of(None)
        found = answers.get(request_id)
        if found is not None and found[2] is answer:
            del answers[request_id]
            self._size -= 1

    def _of(self, tenant: str | None) -> OrderedDict[str, tuple[str, bytes | str, A]]:
        name = current_tenant() if tenant is None else tenant
        found = self._by_tenant.get(name)
        if found is None:
            found = self._by_tenant[name] = OrderedDict()
        return found


def refuse_other_call(request_id: str) -> NoReturn:
    """Refuse a call whose request id another call had."""
    raise RefusedError(
        grpc.StatusCode.INVALID_ARGUMENT,
        "request_id",
        f"request_id must be new for each call, got {shown(request_id)}, which another call had",
    )


def digest(call: Message) -> str:
    """What tells a call from others: of its kind and content, hexadecimal."""
    return _digest_of(type(call).__name__, call.SerializeToString())


def _digest_of(kind: str, content: bytes) -> str:
    return blake2b(kind.encode() + b"\0" + content, digest_size=16).hexdigest()


def _check_id(request_id: str) -> None:
    checked_label("request_id", request_id)
    if len(request_id.encode()) > REQUEST_ID_BYTES:
        raise RefusedError(
            grpc.StatusCode.INVALID_ARGUMENT,
            "request_id",
            f"request_id must be at most {REQUEST_ID_BYTES} bytes of UTF-8, got {shown(request_id)}",
        )
