"""Where smg sends a routing key under `--policy consistent_hashing`.

Each worker has 150 points on a ring of 64 bits, at the first 8 bytes (little-endian) of blake3("URL#i") for i
from 0; a key, at those of blake3(key), belongs to the first point at or after its own, the first of all after
the last. As in smg 1.13.0, model_gateway/src/worker/hash_ring.rs; tests hold it to the released program.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable

try:
    from blake3 import blake3
except ImportError as missing:
    raise ImportError(
        "coresched_smg needs blake3; install it with: pip install 'coresched[smg]'"
    ) from missing

POINTS = 150
"""Of each worker, whatever its weight or priority."""


def position(text: str) -> int:
    """The place of a key, or of a point, on the ring."""
    return int.from_bytes(blake3(text.encode()).digest(8), "little")


class HashRing:
    """smg's ring over these workers' URLs, each once, written as smg lists them."""

    def __init__(self, urls: Iterable[str]) -> None:
        points = sorted((position(f"{url}#{number}"), url) for url in urls for number in range(POINTS))
        self._positions = [place for place, _ in points]
        self._urls = [url for _, url in points]

    def home(self, key: str, out: Collection[str] = ()) -> str:
        """The URL of the first worker for the key that is not `out`. LookupError: there is none."""
        first = bisect_left(self._positions, position(key))
        for step in range(len(self._urls)):
            url = self._urls[(first + step) % len(self._urls)]
            if url not in out:
                return url
        raise LookupError(f"no worker for the key {key!r}")
