"""Which HTTP requests are the same, seen by a transport and by the gateway that it sent them to."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from coresched.recording.events import Attempt


@dataclass
class Request:
    """One request of a harness: as its transport saw it, and what a gateway made of it."""

    outer: Attempt | None
    inner: list[Attempt] = field(default_factory=list)
    """In order of their end. A gateway tries again where it got no connection."""

    @property
    def sent_s(self) -> float:
        return self.outer.sent_s if self.outer is not None else min(one.sent_s for one in self.inner)

    @property
    def ended_s(self) -> float:
        return self.outer.ended_s if self.outer is not None else max(one.ended_s for one in self.inner)

    @property
    def answered(self) -> bool:
        """The harness got its answer to the end."""
        return _last_answered([self.outer] if self.outer is not None else self.inner) is not None

    @property
    def nearest(self) -> Attempt:
        """As who was nearest to the worker saw the answer, or the failure if there is none."""
        nearest = _last_answered(self.inner) if self.answered else None
        return nearest or self.outer or self.inner[-1]

    @property
    def counts(self) -> Attempt:
        """The nearest to the worker that has the answer's usage; the nearest of all if none has."""
        seen = [self.nearest, self.outer]
        return next((one for one in seen if one is not None and has_counts(one)), self.nearest)

    @property
    def failures(self) -> Iterator[Attempt]:
        """What failed: the request itself or, of one that was answered, what a gateway tried before."""
        if not self.answered:
            yield self.nearest
            return
        for one in self.inner:
            if one.reason is not None:
                yield one


def has_counts(attempt: Attempt) -> bool:
    """Whether it has the two counts without which a turn is no turn of a trace."""
    return attempt.prompt_tokens is not None and attempt.output_tokens is not None


def requests_of(transports: Iterable[Attempt], gateways: Iterable[Attempt]) -> list[Request]:
    """The requests of one label, in order of sending.

    A gateway's attempt is part of the transport's request with the same answer id or, where one of them knows
    no id of its own, of that with which it shares most of its time.
    """
    outers = sorted(transports, key=_order)
    inners = sorted(gateways, key=_order)
    requests = [Request(outer) for outer in outers]
    begun = [outer.sent_s for outer in outers]
    longest_s = max((outer.ended_s - outer.sent_s for outer in outers), default=0.0)
    own_ids = _ids(outers) & _ids(inners)
    by_id = {request.outer.answer_id: request for request in requests if request.outer is not None}
    for inner in inners:
        if inner.answer_id in own_ids:
            by_id[inner.answer_id].inner.append(inner)
            continue
        first = bisect_left(begun, inner.sent_s - longest_s)
        shared = [
            (_shared_s(outer, inner), -place)
            for place, outer in enumerate(outers[first : bisect_right(begun, inner.ended_s)], start=first)
            if _may_be_same(outer, inner, own_ids)
        ]
        overlap_s, place = max(shared, default=(-1.0, 0))
        if overlap_s >= 0:
            requests[-place].inner.append(inner)
        else:
            requests.append(Request(None, [inner]))
    for request in requests:
        request.inner.sort(key=lambda one: (one.ended_s, one.sent_s))
    return sorted(requests, key=lambda request: (request.sent_s, request.ended_s))


def _order(attempt: Attempt) -> tuple[float, float, str, str]:
    return attempt.sent_s, attempt.ended_s, attempt.worker, attempt.answer_id or ""


def _ids(attempts: Sequence[Attempt]) -> set[str]:
    """The answer ids that are there once; some servers give all their answers the same."""
    seen = Counter(attempt.answer_id for attempt in attempts)
    return {id for id, number in seen.items() if id is not None and number == 1}


def _may_be_same(outer: Attempt, inner: Attempt, own_ids: set[str]) -> bool:
    if outer.answer_id in own_ids:  # another is its twin; what failed before that has no id
        return inner.answer_id is None
    return outer.answer_id is None or inner.answer_id is None or outer.answer_id == inner.answer_id


def _shared_s(outer: Attempt, inner: Attempt) -> float:
    """Seconds that both run; negative if they do not meet."""
    return min(outer.ended_s, inner.ended_s) - max(outer.sent_s, inner.sent_s)


def _last_answered(attempts: Sequence[Attempt]) -> Attempt | None:
    return next((one for one in reversed(attempts) if one.reason is None), None)
