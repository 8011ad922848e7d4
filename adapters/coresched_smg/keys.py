"""Routing keys made so that smg sends each to the worker that it is meant for."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from coresched.client.local import ROUTING_HEADER
from coresched.core.checks import check_label, check_several
from coresched_smg.ring import HashRing, position

LONGEST_KEY = 128
"""Bytes; smg ignores a longer routing key."""

_LONGEST_STEM = LONGEST_KEY - 8  # leaves room for ".1234567"


class MintedKeys:
    """A routing key for each worker and label, whose home on smg's ring is that worker.

    `workers`: the URLs of all workers of one model, as smg lists them under GET /workers. When a worker joins
    or leaves, make new ones: a key stays good while its worker is there, unless a newcomer takes its place.

    A key is the label with a number: "task-17.3" is the first of "task-17.0", "task-17.1", ... that smg sends
    to the worker. So it is always the same one for a label on a worker, and never that of another label;
    an engine that reads labels from the routing key, as SGLang does, tells trajectories apart by it. A label
    that a header cannot hold, or that is too long, is replaced by its hash.

    Raises TypeError or ValueError for what is no set of different URLs.
    """

    def __init__(self, workers: Iterable[str]) -> None:
        urls = tuple(check_label(url, "worker") for url in check_several(workers, "workers", "URLs"))
        if not urls or len(set(urls)) < len(urls):
            raise ValueError(f"workers must be different URLs, at least one, got {list(urls)!r}")
        self.workers = urls
        """The URLs, in the order given."""
        self._known = frozenset(urls)
        self._ring = HashRing(urls)

    def key(self, worker: str, label: str = "coresched") -> str:
        """The routing key that smg sends to this worker: as many hashes as there are workers, on average.

        Raises LookupError for an unknown worker, TypeError or ValueError for what is no label.
        """
        if worker not in self._known:
            raise LookupError(f"worker must be one of {sorted(self._known)!r}, got {worker!r}")
        stem = _stem(check_label(label, "label"))
        for number in count():
            key = f"{stem}.{number}"
            if self._ring.home(key) == worker:
                return key
        raise AssertionError("a ring has points of every worker")

    def headers(self, worker: str, label: str = "coresched") -> dict[str, str]:
        """The key as a header, for any HTTP client. Raises as `key` does."""
        return {ROUTING_HEADER: self.key(worker, label)}

    def home(self, key: str) -> str:
        """The worker that smg sends this key to while all are healthy."""
        return self._ring.home(key)


def _stem(label: str) -> str:
    if len(label) <= _LONGEST_STEM and label.isascii() and label.isprintable() and label == label.strip():
        return label
    return f"label-{position(label):016x}"
