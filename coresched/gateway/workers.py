"""The engine workers behind the gateway: where they are, whether they are healthy, what was sent to each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from yarl import URL

from coresched.errors import InputError


@dataclass(slots=True, eq=False)
class Worker:
    """One worker. Its name is its base URL; `weight` is its capacity relative to the others.

    The counts are since the start: `requests` routed to it, `retries` of these that had failed to connect
    elsewhere, `failures` (no connection, reset before the headers or in the middle of an answer), `spilled`
    those that had it as home and went to another, because of its load or because it was out.
    """

    name: str
    weight: float = 1.0
    healthy: bool = True
    failed_in_a_row: int = 0
    """Failed checks and resets before the headers since the last check that passed."""
    requests: int = 0
    retries: int = 0
    failures: int = 0
    spilled: int = 0
    in_flight: int = 0
    recheck: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker failed a request, so that the next check is due now."""
    authority: str = field(init=False)
    """Host and, unless it is the scheme's own, port; as in a Host header."""
    prefix: str = field(init=False)
    """The path of the base URL, which comes before a request's; empty for none."""

    def __post_init__(self) -> None:
        url = URL(self.name, encoded=True)
        self.authority = url.host_port_subcomponent or ""
        self.prefix = url.raw_path.rstrip("/")

    def url(self, path: str) -> URL:
        """Where a path is on this worker."""
        return URL(self.name + path, encoded=True)


def worker_at(text: str, weight: float = 1.0) -> Worker:
    """The worker at a base URL, such as http://10.0.0.1:30000. Raises InputError if it is none."""
    wanted = f"--worker must be a base URL, such as http://10.0.0.1:30000, got {text!r}"
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise InputError(f"{wanted}, which has other characters than a URL's")
    try:
        url = URL(text, encoded=True)
        port = url.port
    except ValueError as error:
        raise InputError(f"{wanted}: {error}") from None
    if url.scheme not in ("http", "https"):
        raise InputError(f"{wanted}, which does not begin with http:// or https://")
    if not url.host or not port:
        raise InputError(f"{wanted}, which has no host or port 0")
    if url.user is not None or url.password is not None:
        raise InputError("--worker must not hold a user or password; clients send an Authorization header")
    if "?" in text or "#" in text:
        raise InputError(f"{wanted}, which has a query or a fragment")
    return Worker(text.rstrip("/"), weight)


def checked_workers(workers: list[Worker]) -> list[Worker]:
    """The same. Raises InputError if there is none or one twice."""
    if not workers:
        raise InputError("--worker must be given at least once, such as --worker http://127.0.0.1:30000")
    met: set[object] = set()
    for worker in workers:
        url = URL(worker.name)
        place = (url.scheme, url.host, url.port, url.path)
        if place in met:
            raise InputError(f"--worker must name each worker once, got {worker.name!r} again")
        met.add(place)
    return workers
