"""One worker's waiting queue: who waits, in the order of the last pass, and who was admitted from it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from grpc import StatusCode

from coresched.core.prefix import RoutingPrefixPolicy
from coresched.service.prefix.counts import PrefixCounts
from coresched.service.prefix.request import Pushed, Request, check_tokens, entered, told
from coresched.service.refusal import RefusedError, checked_label, shown

LARGEST_LABEL_CAPACITY = 1_000_000
LARGEST_QUEUE = 100_000
"""Most requests that wait in one queue."""
REMEMBERED_ADMISSIONS = 10_000
"""Admitted requests whose record a queue keeps: more than an engine runs at once, and so can retract."""
LONGEST_PAGE_BYTES = 60 * 1024
"""Most bytes of names in one answer, which so stays under 64 KiB."""


class WaitingQueue:
    """RP for one worker, by the names of its requests. Every step is checked before anything changes.

    A pass needs hits: whoever makes it first asks for those of `unasked()`, unless there are none.
    """

    def __init__(
        self,
        label_capacity: int,
        *,
        largest: int = LARGEST_QUEUE,
        remembered: int = REMEMBERED_ADMISSIONS,
        counts: PrefixCounts | None = None,
    ) -> None:
        """Refused: INVALID_ARGUMENT for label_capacity (C_A, in labels)."""
        if not 1 <= label_capacity <= LARGEST_LABEL_CAPACITY:
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT,
                "label_capacity",
                f"label_capacity must be from 1 to {LARGEST_LABEL_CAPACITY} labels, got {label_capacity}",
            )
        self._policy = RoutingPrefixPolicy(label_capacity)
        self._waiting: dict[str, Request] = {}  # its order is that of the last pass, then of arrival
        self._admitted: OrderedDict[str, Request] = OrderedDict()  # the last admission last
        self._largest = largest
        self._remembered = remembered
        self._counts = PrefixCounts() if counts is None else counts
        self._arrivals = 0
        self._timed: bool | None = None  # whether the requests come with queued_at; None before the first

    @property
    def label_capacity(self) -> int:
        return self._policy.label_capacity

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, entering: Sequence[Pushed]) -> None:
        """Add requests at the end.

        Refused: INVALID_ARGUMENT for name, label, queued_at and hit_tokens, ALREADY_EXISTS for a name that
        waits or was admitted, FAILED_PRECONDITION for a queued_at where others have none or the reverse,
        RESOURCE_EXHAUSTED for a full queue.
        """
        self._check_room(len(entering), "requests")
        requests: dict[str, Request] = {}
        timed = self._timed
        for place, pushed in enumerate(entering):
            checked_label("name", pushed.name)
            self._check_new(pushed.name, requests)
            if timed is None:
                timed = pushed.queued_at is not None
            if timed != (pushed.queued_at is not None):
                raise RefusedError(
                    StatusCode.FAILED_PRECONDITION,
                    "queued_at",
                    f"queued_at must be on every request of a queue or on none, and request "
                    f"{shown(pushed.name)} is the first {'without' if timed else 'with'} it",
                )
            requests[pushed.name] = entered(pushed, arrival=self._arrivals + place)
        self._timed = timed
        self._arrivals += len(requests)
        self._waiting.update(requests)

    def requeue(self, names: Sequence[str]) -> None:
        """Put admitted requests back at the end, with all that was recorded of them.

        Refused: INVALID_ARGUMENT for a name that comes twice, NOT_FOUND for one without a record,
        RESOURCE_EXHAUSTED for a full queue.
        """
        self._check_room(len(names), "names")
        for name in _distinct(names):
            if name not in self._admitted:
                raise RefusedError(
                    StatusCode.NOT_FOUND,
                    "names",
                    f"names must be of the last {self._remembered} requests admitted from the queue, "
                    f"got {shown(name)}",
                )
        for name in names:
            self._waiting[name] = self._admitted.pop(name)

    def unasked(self) -> list[Request]:
        """The waiting requests whose hit a pass needs and nobody told, in their present order."""
        return [
            request
            for request in self._waiting.values()
            if request.tokens is None and request.label in self._policy
        ]

    def set_hits(self, hits: Sequence[tuple[str, int]]) -> None:
        """Record hits, in tokens, of waiting requests.

        Refused: INVALID_ARGUMENT for tokens below 0 or a name that comes twice, NOT_FOUND for a request that
        does not wait, FAILED_PRECONDITION for one whose hit is known.
        """
        for name in _distinct([name for name, _ in hits], "name"):
            if self._find(name, "name").tokens is not None:
                raise RefusedError(
                    StatusCode.FAILED_PRECONDITION,
                    "name",
                    f"name must be of a request whose hit is not known, got {shown(name)}, whose is",
                )
        for name, tokens in hits:
            check_tokens("tokens", tokens, name)
        for name, tokens in hits:
            self._waiting[name].tokens = tokens

    def make_pass(self) -> None:
        """Sort the waiting requests by RP. `unasked()` must be empty."""
        self._counts.passes += 1
        present = list(self._waiting.values())
        ordered = self._policy.order(present, told)
        if ordered != present:
            # The policy returns the objects that it was given.
            self._waiting = {request.id: self._waiting[request.id] for request in ordered}

    def names(self, limit: int | None, after: str | None = None) -> list[str]:
        """The names that wait, in their present order: at most `limit`, and no more than a page.

        With `after`, those behind it. Refused: NOT_FOUND if it does not wait.
        """
        names: Iterable[str] = self._waiting
        if after is not None:
            self._find(after, "after")
            names = iter(self._waiting)
            for name in names:
                if name == after:
                    break
        return page(islice(names, limit))

    def admitted(self, names: Sequence[str]) -> None:
        """Take requests out of the queue and touch their labels, in this order.

        Refused: INVALID_ARGUMENT for a name that comes twice, NOT_FOUND for one that does not wait.
        """
        for name in _distinct(names):
            self._find(name, "names")
        for name in names:
            request = self._waiting.pop(name)
            self._count(request.label)
            self._policy.admitted(request.label)
            self._admitted[name] = request
        while len(self._admitted) > self._remembered:
            self._admitted.popitem(last=False)

    def forget(self, names: Collection[str]) -> tuple[int, int]:
        """Drop requests without touching A: how many of them waited, and how many had been admitted."""
        waiting = sum(self._waiting.pop(name, None) is not None for name in names)
        admitted = sum(self._admitted.pop(name, None) is not None for name in names)
        return waiting, admitted

    def _count(self, label: str | None) -> None:
        if label is None:
            self._counts.unlabelled += 1
        elif label in self._policy:
            self._counts.hits += 1
        else:
            self._counts.misses += 1

    def _check_room(self, entering: int, field: str) -> None:
        if len(self._waiting) + entering > self._largest:
            raise RefusedError(
                StatusCode.RESOURCE_EXHAUSTED,
                field,
                f"{field} must leave at most {self._largest} waiting in the queue, got {entering} more for "
                f"{len(self._waiting)} that wait",
            )

    def _check_new(self, name: str, entering: Collection[str]) -> None:
        if name in entering:
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT, "name", f"name must come once in a push, got {shown(name)} twice"
            )
        if name in self._waiting:
            raise RefusedError(
                StatusCode.ALREADY_EXISTS,
                "name",
                f"name must be new in the queue, got {shown(name)}, which waits already",
            )
        if name in self._admitted:
            raise RefusedError(
                StatusCode.ALREADY_EXISTS,
                "name",
                f"name must be new in the queue, got {shown(name)}, which was admitted; requeue it if it was "
                "retracted, or forget it first if it has ended",
            )

    def _find(self, name: str, field: str) -> Request:
        request = self._waiting.get(name)
        if request is None:
            raise RefusedError(
                StatusCode.NOT_FOUND,
                field,
                f"{field} must be of a request that waits in the queue, got {shown(name)}, which does not",
            )
        return request


def page(names: Iterable[str]) -> list[str]:
    """As many of the names as fit into one answer; one always does."""
    kept: list[str] = []
    room = LONGEST_PAGE_BYTES
    for name in names:
        room -= len(name.encode()) + 3  # the tag of the field and the length of the text
        if room < 0:
            break
        kept.append(name)
    return kept


def _distinct(names: Sequence[str], field: str = "names") -> Sequence[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT,
                field,
                f"{field} must come once in a call, got {shown(name)} twice",
            )
        seen.add(name)
    return names
