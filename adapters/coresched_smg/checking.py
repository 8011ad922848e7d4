"""Whether smg sends minted keys where they are meant to go, asked of smg itself before any work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil, log2

import httpx

from coresched.errors import InputError
from coresched_smg.keys import MintedKeys

ROUTED_WORKER = "x-smg-routed-worker-id"
"""The header of smg's answers that has the URL of the worker that it sent the request to."""

_FIX = "start smg 1.13 with --policy consistent_hashing and --disable-worker-overload-protection"
_CHANCE = 10  # bits: another policy passes once in 2**_CHANCE starts


def probes(keys: MintedKeys, workers: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Worker and key of each request to make: several keys a worker, since one may be right by chance."""
    urls = list(workers)
    each = 1 if len(urls) == 1 else max(2, ceil(_CHANCE / (len(urls) * log2(len(urls)))))
    for url in urls:
        for number in range(each):
            yield url, keys.key(url, f"coresched-check-{number}")


def check_probe(worker: str, answer: httpx.Response) -> None:
    """Raises InputError unless smg sent the probe to this worker, whatever the worker made of it."""
    routed = answer.headers.get(ROUTED_WORKER)
    if routed == worker:
        return
    if routed is not None:
        raise InputError(f"smg sent a key minted for worker {worker} to {routed}; {_FIX}")
    if answer.status_code in (401, 403):
        raise InputError(
            f"{answer.request.url} answered {answer.status_code}: {answer.text[:200]!r}; give a key that smg "
            "takes for completions, as for GET /workers, in headers={'Authorization': ...}"
        )
    raise InputError(
        f"{answer.request.url} answered {answer.status_code} to a key minted for worker {worker}, without "
        f"{ROUTED_WORKER}: {answer.text[:200]!r}; {_FIX} (sglang-router tells no worker and has no ring: use "
        "coresched gateway in its place)"
    )
