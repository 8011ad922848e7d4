"""LBCH over the workers behind an smg: who they are, which are out, and the keys that reach them."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from time import monotonic
from types import TracebackType

import httpx

from coresched.client.label import check_header_text
from coresched.client.local import ROUTING_HEADER, SESSION_HEADER
from coresched.client.routed import own_or_given
from coresched.client.shared import Flight, SharedRouter
from coresched.core.checks import check_positive
from coresched.errors import InputError
from coresched_smg.checking import ROUTED_WORKER, check_probe, probes
from coresched_smg.keys import MintedKeys
from coresched_smg.listing import Listing, read_listing

_PROBE_S = 30.0  # a busy worker may take its time
_LISTING_S = 5.0
_log = logging.getLogger("coresched_smg")


class SmgRouter:
    """Chooses a worker for each label by LBCH, and the routing key that makes smg choose the same.

    `url`: smg's. Workers are named by their URLs, as smg lists them. `model`: whose workers, where smg has
    several models. `router`: a SharedRouter over the workers, in place of one made with `load_bound` and
    `slack`; workers
    that join or leave smg join and leave it. `headers`: sent to smg with what this asks, such as
    Authorization. `refresh_s`: seconds between two looks at smg's list of workers.

    Asks smg for its workers, and checks with tiny completions that minted keys reach them, before it is
    there. A thread then follows smg's list until `close`, which leaving the block calls: keys are made anew
    when a worker joins or leaves, and a worker that is not healthy, or whose key has just led elsewhere, is
    passed over. One object does for any number of threads, event loops and transports.

    Raises InputError where smg cannot be reached, lists no worker or sends keys elsewhere; TypeError or
    ValueError for another bad argument.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        load_bound: float = 1.25,
        slack: int = 0,
        router: SharedRouter | None = None,
        headers: Mapping[str, str] | None = None,
        refresh_s: float = 2.0,
    ) -> None:
        self.url = _checked_url(url)
        self._refresh_s = check_positive(refresh_s, "refresh_s")
        self._smg = httpx.Client(base_url=self.url, headers=_checked_headers(headers))
        try:
            listing = read_listing(self._asked("GET", "/workers", _LISTING_S), model)
            self.model = listing.model
            """The model whose workers these are."""
            self.keys = MintedKeys(listing.healthy)
            """The keys for the workers that smg lists at present."""
            self._check(listing)
            self.router = own_or_given(tuple(listing.healthy), None, router, load_bound, 128, slack)
            """What chooses, and has the counts."""
        except BaseException:
            self._smg.close()
            raise
        self._last_keys = dict.fromkeys(listing.healthy, self.keys)  # also of workers that left
        self.addresses = dict.fromkeys(listing.healthy, httpx.URL(self.url))
        """Where to send a request for each worker that smg lists, or has: to smg."""
        self._unhealthy = _unhealthy(listing)
        self._led_elsewhere: dict[str, float] = {}  # by worker, until when at least it is passed over
        self._elsewhere: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._looking = threading.Lock()  # so that an older list does not come after a newer one
        self._look_now = threading.Event()
        self._closed = False
        self._follower = threading.Thread(target=self._follow, name="coresched-smg", daemon=True)
        self._follower.start()

    def route(self, label: str, exclude: Collection[str] = ()) -> Flight:
        """Choose a worker that is in and outside `exclude`, and count the request there.

        When all are out, smg is left to say so. Raises as SharedRouter.route.
        """
        while out := self.out():
            present = set(self.router.workers())
            avoided = present & out.union(exclude)
            if avoided == present:
                break
            try:
                return self.router.route(label, avoided)
            except LookupError:
                if avoided <= set(self.router.workers()):
                    raise
                # else one of them has just left: again, without it
        return self.router.route(label, exclude)

    def workers(self) -> list[str]:
        """The workers' URLs: what to give a Batch as `workers`."""
        return self.router.workers()

    def out(self) -> set[str]:
        """Workers that are passed over at present: what to give a turn as `exclude`."""
        with self._lock:
            return self._unhealthy | set(self._led_elsewhere)

    def elsewhere(self) -> dict[tuple[str, str], int]:
        """How many requests for the first worker another one served, by both: it was dead, gone or full."""
        with self._lock:
            return dict(self._elsewhere)

    def headers(self, worker: str, label: str) -> dict[str, str]:
        """The headers that send a request of this label to this worker through smg, for any HTTP client.

        A worker that has left smg keeps its key, which leads to another. Raises LookupError for an unknown
        worker, ValueError for a label that no header can hold.
        """
        keys = self._last_keys.get(worker)
        if keys is None:
            raise LookupError(f"worker must be one that smg lists, {self.workers()!r}, got {worker!r}")
        return {**keys.headers(worker, label), SESSION_HEADER: check_header_text(label, "label")}

    def answered(self, headers: Mapping[str, str], flight: Flight) -> str | None:
        """Take from an answer's headers which worker served it, and count the request there."""
        served = headers.get(ROUTED_WORKER)
        chosen = flight.worker
        if served is None or served == chosen:
            return served
        with self._lock:
            self._elsewhere[chosen, served] += 1
            if served in self.keys.workers:  # else a newcomer took the key, and nothing is wrong with it
                self._led_elsewhere[chosen] = monotonic() + self._refresh_s
        self._look_now.set()
        try:
            flight.moved(served)
        except LookupError:  # a worker that joined just now: the request ends where it was counted
            _log.info("worker %s served a request before smg's list had it here", served)
        return served

    def refresh(self) -> None:
        """Look at smg's list of workers now. Raises InputError where there is none."""
        with self._looking:
            began = monotonic()
            self._take(read_listing(self._asked("GET", "/workers", _LISTING_S), self.model), began)

    def close(self) -> None:
        """Stop following smg's list."""
        self._closed = True
        self._look_now.set()
        self._follower.join()
        self._smg.close()

    def __enter__(self) -> SmgRouter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, listing: Listing, began: float) -> None:
        with self._lock:
            if set(listing.healthy) != set(self.keys.workers):
                self._mint(listing)
            unhealthy = _unhealthy(listing)
            for name in sorted(unhealthy - self._unhealthy):
                _log.warning("worker %s is out: smg says that it is not healthy", name)
            for name in sorted(self._unhealthy - unhealthy):
                _log.warning("worker %s is back", name)
            self._unhealthy = unhealthy
            for name in [name for name, until in self._led_elsewhere.items() if until <= began]:
                del self._led_elsewhere[name]

    def _mint(self, listing: Listing) -> None:
        keys = MintedKeys(listing.healthy)
        known = set(self.router.workers())
        self._last_keys.update(dict.fromkeys(keys.workers, keys))
        self.addresses.update(dict.fromkeys(keys.workers, httpx.URL(self.url)))
        self.keys = keys
        for name in keys.workers:
            if name not in known:
                self.router.add_worker(name)
                _log.warning("worker %s has joined smg; keys are minted anew", name)
        for name in known - set(keys.workers):
            self.router.remove_worker(name)
            self._led_elsewhere.pop(name, None)
            _log.warning("worker %s has left smg; keys are minted anew", name)

    def _check(self, listing: Listing) -> None:
        healthy = [name for name, up in listing.healthy.items() if up]
        if not healthy:
            raise InputError(
                f"smg at {self.url} has no healthy worker for the model {listing.model!r}, of "
                f"{sorted(listing.healthy)!r}, so its keys cannot be checked; wait until one is, or start one"
            )
        for worker, key in probes(self.keys, healthy):
            body = {"model": listing.model, "prompt": "a", "max_tokens": 1}
            sent = {ROUTING_HEADER: key}
            check_probe(worker, self._asked("POST", "/v1/completions", _PROBE_S, json=body, headers=sent))

    def _asked(
        self,
        method: str,
        path: str,
        patience_s: float,
        *,
        json: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        try:
            return self._smg.request(method, path, json=json, headers=headers, timeout=patience_s)
        except httpx.HTTPError as error:
            raise InputError(
                f"url must be that of a running smg, got {self.url!r}: {type(error).__name__} {error}"
            ) from None

    def _follow(self) -> None:
        told = ""
        while True:
            self._look_now.wait(self._refresh_s)
            self._look_now.clear()
            if self._closed:
                return
            try:
                self.refresh()
                told = ""
            except InputError as error:  # what was known last goes on
                if str(error) != told:
                    _log.warning("%s", error)
                told = str(error)


def _unhealthy(listing: Listing) -> set[str]:
    return {name for name, up in listing.healthy.items() if not up}


def _checked_headers(headers: Mapping[str, str] | None) -> httpx.Headers:
    """Raises TypeError or ValueError, which show no value: it may be a key."""
    try:
        checked = httpx.Headers(headers)
    except UnicodeEncodeError:
        raise ValueError("headers must be ASCII text, got other characters in a name or value") from None
    except (TypeError, ValueError, AttributeError):
        raise TypeError(
            "headers must map names to text, such as {'Authorization': 'Bearer ...'}, got "
            f"{type(headers).__name__}, or something else in it"
        ) from None
    return checked


def _checked_url(url: str) -> str:
    rule = "url must be smg's http or https URL such as 'http://127.0.0.1:30000'"
    if not isinstance(url, str):
        raise TypeError(f"{rule}, got {url!r}")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{rule}, got {url!r}: {error}") from None
    if parsed.userinfo:
        raise ValueError(
            f"{rule}, without a password, got one for {parsed.host!r}; give headers={{'Authorization': ...}}"
        )
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise ValueError(f"{rule}, got {url!r}")
    if parsed.path.rstrip("/").endswith("/v1"):
        raise ValueError(f"url must be smg's URL without /v1 at its end, got {url!r}")
    return str(parsed).rstrip("/")
