"""Which headers go on: end-to-end ones do, those of a single connection (RFC 9110, 7.6.1) do not."""

from __future__ import annotations

from multidict import CIMultiDict, CIMultiDictProxy, istr

from coresched.gateway.labels import ROUTING_HEADER
from coresched.gateway.refusal import shown

WORKER_HEADER = istr("x-coresched-worker")

_CONNECTION = istr("Connection")

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


_CLOSE = frozenset(("close", ""))

Headers = CIMultiDict[str]


class HeaderTextError(ValueError):
    """A header that cannot go on, because its value is not UTF-8."""


def to_worker(headers: CIMultiDictProxy[str], label: str | None) -> Headers:
    """The headers of the request to the worker, without Host and Content-Length. Raises HeaderTextError."""
    kept = _kept(headers, _NOT_TO_WORKER)
    if label is not None:
        kept[ROUTING_HEADER] = label
    return kept


def to_client(headers: CIMultiDictProxy[str], worker: str) -> Headers:
    """The headers of the response to the client. Raises HeaderTextError."""
    kept = _kept(headers, _NOT_TO_CLIENT)
    kept[WORKER_HEADER] = worker
    return kept


def _kept(headers: CIMultiDictProxy[str], dropped: frozenset[str]) -> Headers:
    """In lower case, because aiohttp takes names that differ in case for different ones, and loses one."""
    if _CONNECTION in headers:
        named = {name.strip().lower() for value in headers.getall(_CONNECTION) for name in value.split(",")}
        if not named <= dropped | _CLOSE:
            dropped |= named
    kept = [(low, value) for name, value in headers.items() if (low := name.lower()) not in dropped]
    for name, value in kept:
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise HeaderTextError(f"header {name} must be UTF-8, got {shown(value)}") from None
    return CIMultiDict(kept)
