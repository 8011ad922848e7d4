"""Requests for "the workers" turned into requests for one of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import httpx

from coresched.client.local import SESSION_HEADER
from coresched.client.routed import Claim, claim, may_try_another
from coresched.client.shared import Flight
from coresched.core.checks import check_label, check_several

_ASKED = "coresched_asked"  # request extension, which a redirect keeps: the origin that the caller asked


def _worker_url(name: str, url: object) -> httpx.URL:
    rule = f"worker {name!r} must have an http or https URL such as 'http://10.0.0.1:30000'"
    if not isinstance(url, str):
        raise TypeError(f"{rule}, got {url!r}; relative capacities go into weights")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{rule}, got {url!r}: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"{rule}, got {url!r}")
    if parsed.userinfo:
        raise ValueError(
            f"a worker's URL must hold no password, got one for {parsed.host!r}; send it in headers"
        )
    if parsed.query or parsed.fragment:
        raise ValueError(f"{rule}, without query and fragment, got {url!r}")
    if parsed.path.rstrip("/").endswith("/v1"):
        raise ValueError(
            f"worker {name!r} must have a URL without /v1 at its end, got {url!r}; the request brings it, "
            "from a client's base_url such as 'http://workers/v1'"
        )
    return parsed.copy_with(path=parsed.path.rstrip("/") or "/")


def worker_urls(workers: Iterable[str] | Mapping[str, str]) -> dict[str, httpx.URL]:
    """Base URL by worker name. Raises TypeError or ValueError for what is no set of distinct base URLs."""
    if isinstance(workers, Mapping):
        named = list(workers.items())
    else:
        listed = check_several(workers, "workers", "URLs or a mapping from names to URLs")
        named = [(url, url) for url in listed]
    urls: dict[str, httpx.URL] = {}
    for name, url in named:
        name = check_label(name, "worker")
        parsed = _worker_url(name, url)
        if name in urls or parsed in urls.values():
            raise ValueError(f"workers must each have a URL of their own, got {url!r} a second time")
        urls[name] = parsed
    if not urls:
        raise ValueError("workers must name at least one worker, got none")
    return urls


def readdressed(request: httpx.Request, base: httpx.URL) -> httpx.Request:
    """The request, with headers of its own, to another server."""
    url = request.url.copy_with(
        scheme=base.scheme,
        host=base.host,
        port=base.port,
        raw_path=base.raw_path.rstrip(b"/") + request.url.raw_path,
    )
    headers = request.headers.copy()
    headers["Host"] = url.netloc.decode("ascii")
    return httpx.Request(
        request.method, url, headers=headers, stream=request.stream, extensions=request.extensions
    )


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


class AddressBook:
    """Where the workers are, and what a request to one of them looks like."""

    def __init__(self, workers: Iterable[str] | Mapping[str, str], label_header: str) -> None:
        self.urls = worker_urls(workers)
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", label_header):
            raise ValueError(f"label_header must be the name of an HTTP header, got {label_header!r}")
        self._header = label_header

    def claim(self, request: httpx.Request) -> Claim:
        """The label of the request and, inside a routed turn, its worker.

        Raises ValueError without a label, TypeError for a request of another library, and
        httpx.RemoteProtocolError for one that a worker redirected to another host.
        """
        if not isinstance(request, httpx.Request):
            raise TypeError(
                f"this transport is for clients of httpx, got a request of {type(request).__module__}; give "
                "an OpenAI client http_client=httpx.AsyncClient(...) or httpx.Client(...)"
            )
        origin = _origin(request.url)
        asked = request.extensions.get(_ASKED, origin)
        if asked != origin:
            raise httpx.RemoteProtocolError(
                f"a worker redirected to {request.url}; redirects to other hosts are not followed",
                request=request,
            )
        request.extensions = {**request.extensions, _ASKED: asked}
        return claim(self._header, request.headers.get(self._header))

    def addressed(self, request: httpx.Request, label: str, worker: str) -> httpx.Request:
        """The request as the worker gets it. The caller's own stays as it was; redirects start from it."""
        addressed = readdressed(request, self.urls[worker])
        addressed.headers[self._header] = label
        addressed.headers.setdefault(SESSION_HEADER, label)
        return addressed

    def may_try_another(self, claim: Claim, tried: Collection[str]) -> bool:
        """Whether a call that got no connection is sent to a second worker."""
        return may_try_another(claim, tried, self.urls)

    def answered(self, response: httpx.Response, flight: Flight) -> None:
        """The headers of the answer are there: a worker's own say nothing of where the request went."""

    def unreachable(
        self, request: httpx.Request, tried: Iterable[str], error: Exception
    ) -> httpx.TransportError:
        """The last failure to connect, with the workers named."""
        urls = {name: str(self.urls[name]).rstrip("/") for name in tried}
        where = " or ".join(
            name if name.rstrip("/") == url else f"{name} ({url})" for name, url in urls.items()
        )
        kind = httpx.ConnectTimeout if isinstance(error, httpx.ConnectTimeout) else httpx.ConnectError
        return kind(f"no connection to worker {where}: {error}", request=request)
