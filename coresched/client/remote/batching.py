"""Names of samples in messages of a size that the service takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_LARGEST_BYTES = 48 * 1024  # of names, in a message of at most 64 KiB
_MOST = 1000  # names in a message


def messages(names: Iterable[str]) -> Iterator[list[str]]:
    """The names in order, cut into lists of which each fits into one SubmitSamples."""
    several: list[str] = []
    size = 0
    for name in names:
        length = len(name.encode()) + 4 + 8  # tag and length, and what is expected of it
        if several and (size + length > _LARGEST_BYTES or len(several) == _MOST):
            yield several
            several, size = [], 0
        several.append(name)
        size += length
    if several:
        yield several
