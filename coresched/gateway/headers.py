"""Which headers go on: end-to-end ones do, those of a single connection (RFC 9110, 7.6.1) do not."""

from __future__ import annotations

from collections.abc import Iterable

from multidict import CIMultiDict, CIMultiDictProxy, istr

from coresched.gateway.labels import ROUTING_HEADER, SESSION_HEADER
from coresched.gateway.refusal import shown

WORKER_HEADER = istr("x-coresched-worker")

_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)

# Set anew for the hop to the worker: its host, the length of the whole body. `Expect` is answered here.
_NOT_TO_WORKER = _HOP_BY_HOP | {"host", "content-length", "expect", str(ROUTING_HEADER)}

_NOT_TO_CLIENT = _HOP_BY_HOP | {str(WORKER_HEADER)}


_CLOSE = frozenset(("close", "keep-alive", ""))

Headers = CIMultiDict[str]


class HeaderTextError(ValueError):
    """A header that cannot go on, because its value is not UTF-8."""


def to_worker(headers: CIMultiDictProxy[str], label: str | None) -> Headers:
    """The headers of the request to the worker, without Host and Content-Length. Raises HeaderTextError."""
    kept = _kept(headers.items(), _NOT_TO_WORKER)
    if label is not None:
        kept[ROUTING_HEADER] = label
        kept.setdefault(SESSION_HEADER, label)
    return kept


def to_client(headers: Iterable[tuple[str, str]], worker: str) -> Headers:
    """The headers of the response to the client. Raises HeaderTextError."""
    kept = _kept(headers, _NOT_TO_CLIENT)
    kept[WORKER_HEADER] = worker
    return kept


def request_head(request: str, authority: str, headers: Headers, length: int | None) -> bytes:
    """A request to a worker up to its body, of which `length` is the size in bytes; None if it has none.

    `request` is method and target. Raises ValueError for line breaks, which the server's parser lets in
    nowhere: with one, a request could be made into two.
    """
    lines = [f"{request} HTTP/1.1", f"host: {authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if length is not None:
        lines.append(f"content-length: {length}")
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or "\0" in head:
        raise ValueError("a header or the target has a line break or a zero byte")
    return f"{head}\r\n\r\n".encode()


def _kept(headers: Iterable[tuple[str, str]], dropped: frozenset[str]) -> Headers:
    """In lower case, because aiohttp takes names that differ in case for different ones, and loses one."""
    lower = [(name.lower(), value) for name, value in headers]
    for name, value in lower:
        if name == "connection":
            named = {item.strip().lower() for item in value.split(",")}
            if not named <= _CLOSE:
                dropped |= named
    kept = [pair for pair in lower if pair[0] not in dropped]
    for name, value in kept:
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise HeaderTextError(f"header {name} must be UTF-8, got {shown(value)}") from None
    return CIMultiDict(kept)
