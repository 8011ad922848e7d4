"""Whether the passes of a run are those of the policy: replayed by its readable specification."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from coresched.core.reference import ReferencePrefixPolicy, ReferenceWaiting
from coresched_simdevice.virtual.passes import Pass, PrefixPass, Queued

P = TypeVar("P", bound=Pass)


class OrderError(AssertionError):
    """A pass that the policy would have done otherwise."""


class OrderChecker(ABC, Generic[P]):
    """Replays one engine's passes, from its first.

    Nothing is taken from the record but what came from outside the policy. What the policy made of it is
    found anew, and must be that of the record.
    """

    def __init__(self, policy: str) -> None:
        self._name = policy
        self._requests: dict[str, ReferenceWaiting] = {}
        self.passes = 0

    def check(self, one: P) -> None:
        """Raises `OrderError` at the first difference."""
        self.passes += 1
        ordered = self.ordered(one, [self._request(each) for each in one.waiting])
        self.same("order", one.ordered, [request.id for request in ordered])
        # SGLang fills a batch from the head of the queue and stops where a request does not fit.
        admitted = ordered[: len(one.admitted)]
        self.same("admitted", one.admitted, [request.id for request in admitted])
        self.admitted(one, admitted)

    @abstractmethod
    def ordered(self, one: P, waiting: list[ReferenceWaiting]) -> list[ReferenceWaiting]:
        """The queue as the policy leaves it."""

    @abstractmethod
    def admitted(self, one: P, requests: list[ReferenceWaiting]) -> None:
        """The batch was filled; the policy may learn from it."""

    def same(self, what: str, found: Iterable[object], expected: Iterable[object]) -> None:
        found, expected = list(found), list(expected)
        if found != expected:
            raise self.error(f"{what}: {found}, where {self._name} has {expected}")

    def error(self, message: str) -> OrderError:
        return OrderError(f"pass {self.passes}: {message}")

    def _request(self, seen: Queued) -> ReferenceWaiting:
        """One for all the passes in which it waits: one that waits again keeps its hit and entry."""
        known = self._requests.get(seen.id)
        if known is None:
            known = self._requests[seen.id] = ReferenceWaiting(seen.id, seen.label, seen.entry)
        elif (known.label, known.queued_at) != (seen.label, seen.entry):
            raise self.error(f"{seen.id} changed its label or entry: {seen.label!r}, {seen.entry}")
        return known


class PrefixChecker(OrderChecker[PrefixPass]):
    """Of routing-prefix with a label set of the capacity C_A.

    From outside came who waits, in which order they came, what SGLang answered and whom it admitted. The
    label set, the recorded hits and the order are its own.
    """

    def __init__(self, label_capacity: int) -> None:
        super().__init__("routing-prefix")
        self._policy = ReferencePrefixPolicy(label_capacity)

    def ordered(self, one: PrefixPass, waiting: list[ReferenceWaiting]) -> list[ReferenceWaiting]:
        self.same("label set", one.labels, self._policy.labels())
        asked: list[str] = []
        answers = {each.id: each.hit for each in one.asked}

        def prefix_hit(request: ReferenceWaiting) -> int:
            asked.append(request.id)
            if request.id not in answers:
                raise self.error(f"the hit of {request.id} was not asked for")
            return answers[request.id]

        ordered = self._policy.order(waiting, prefix_hit)
        self.same("hits asked for", [each.id for each in one.asked], asked)
        return ordered

    def admitted(self, one: PrefixPass, requests: list[ReferenceWaiting]) -> None:
        for request in requests:
            self._policy.admitted(request.label)


def check_all(checker: OrderChecker[P], passes: Iterable[P]) -> int:
    """Check a whole run, from its first pass; returns the number of passes. Raises `OrderError`."""
    for one in passes:
        checker.check(one)
    return checker.passes
