"""What each scheduling pass of a policy of ours saw and did: the record that the order proof reads."""

from collections.abc import Iterable
from pathlib import Path

import msgspec


class Queued(msgspec.Struct, frozen=True, array_like=True):
    """A request in the waiting queue."""

    id: str
    label: str | None
    entry: int
    """Its number in the order in which requests first joined the queue, from 1."""


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """One pass over the waiting queue, and the prefill batch that SGLang made after it."""

    waiting: tuple[Queued, ...]
    """The queue before the pass."""
    ordered: tuple[str, ...]
    """Ids of the queue after the pass."""
    admitted: tuple[str, ...]
    """Ids that left the queue for the batch, in the batch's order."""
    continued: tuple[str, ...]
    """Ids of the batch that had been admitted before: a prefill in chunks, or running requests mixed in."""


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """A prefix hit that the policy asked SGLang for, in tokens."""

    id: str
    hit: int


class PrefixPass(Pass, frozen=True, kw_only=True, tag="routing-prefix"):
    labels: tuple[str, ...]
    """The label set before the pass, the label that was touched longest ago first."""
    asked: tuple[Asked, ...]


class Cached(msgspec.Struct, frozen=True, array_like=True):
    """What SGLang's tree has for a waiting request before the pass, by its read-only match."""

    id: str
    tokens: int
    """Tokens that the request could reuse."""
    inserted: int
    """Tokens of its trajectory up to where the tree was last given it."""


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """A turn of a trajectory that ended and was inserted since the pass before."""

    label: str
    forward: int


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A trajectory that the cache holds, and whether the guard took it for live."""

    label: str
    tokens: int
    live: bool


class Slots(msgspec.Struct, frozen=True, array_like=True):
    """The state slots when the guard had made room."""

    free: int
    size: int
    per_request: int


class Offered(msgspec.Struct, frozen=True, array_like=True):
    """A request that SGLang was about to admit, and what was there of KV, in tokens."""

    id: str
    needed: int
    room: int
    """Free or evictable, without what running requests have reserved."""
    evictable: int
    alone: bool
    """Nothing runs, and nothing was admitted in this pass."""
    held_back: bool


class ResidencyPass(Pass, frozen=True, kw_only=True, tag="routing-residency"):
    forward: int
    """The engine's forwards at the end of the pass before; the clock of the gaps."""
    cached: tuple[Cached, ...]
    """Of the waiting requests for which the tree has anything."""
    ended: tuple[Ended, ...]
    running: tuple[str | None, ...]
    """Labels of the running requests."""
    places: int
    """Requests that may run beside these."""
    resident: tuple[str, ...]
    """Labels that the policy took for cached when the guard had made room, sorted."""
    slots: Slots | None
    """None for a model without recurrent states."""
    live_asked: bool
    """Whether the guard needed to know who is live."""
    held: tuple[Held, ...] | None
    """None where it did not look again, for nothing had changed since it last did."""
    offered: tuple[Offered, ...]
    """In SGLang's order; the pass ends with the first that is held back."""
    lost: tuple[str, ...]
    """Labels that the cache could resume before the pass and not after it."""


def read_passes(path: str | Path) -> Iterable[PrefixPass | ResidencyPass]:
    """What `recording.recorded_passes` wrote."""
    decode = msgspec.json.Decoder(PrefixPass | ResidencyPass).decode
    with open(path, "rb") as file:
        for line in file:
            yield decode(line)
