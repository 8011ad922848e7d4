"""Whether the passes of a run are those of routing-prefix: replayed by its readable specification."""

from collections.abc import Iterable

from coresched.core.reference import ReferencePrefixPolicy, ReferenceWaiting
from coresched_simdevice.virtual.passes import Pass, Queued


class OrderError(AssertionError):
    """A pass that routing-prefix would have done otherwise."""


class OrderChecker:
    """Replays one engine's passes, from its first, with a label set of the same capacity C_A.

    Nothing is taken from the record but what came from outside the policy: who waits, in which order they
    came, what SGLang answered and whom it admitted. The label set, the recorded hits and the order are its
    own, and must be those of the record.
    """

    def __init__(self, label_capacity: int) -> None:
        self._policy = ReferencePrefixPolicy(label_capacity)
        self._requests: dict[str, ReferenceWaiting] = {}
        self.passes = 0

    def check(self, one: Pass) -> None:
        """Raises `OrderError` at the first difference. A request that waits again keeps its hit and entry."""
        self.passes += 1
        self._same("label set", one.labels, self._policy.labels())
        asked: list[str] = []
        answers = {each.id: each.hit for each in one.asked}

        def prefix_hit(request: ReferenceWaiting) -> int:
            asked.append(request.id)
            if request.id not in answers:
                raise self._error(f"the hit of {request.id} was not asked for")
            return answers[request.id]

        ordered = self._policy.order([self._request(each) for each in one.waiting], prefix_hit)
        self._same("hits asked for", [each.id for each in one.asked], asked)
        self._same("order", one.ordered, [request.id for request in ordered])
        # SGLang fills a batch from the head of the queue and stops where a request does not fit.
        self._same("admitted", one.admitted, [request.id for request in ordered[: len(one.admitted)]])
        for request in ordered[: len(one.admitted)]:
            self._policy.admitted(request.label)

    def _request(self, seen: Queued) -> ReferenceWaiting:
        known = self._requests.get(seen.id)
        if known is None:
            known = self._requests[seen.id] = ReferenceWaiting(seen.id, seen.label, seen.entry)
        elif (known.label, known.queued_at) != (seen.label, seen.entry):
            raise self._error(f"{seen.id} changed its label or entry: {seen.label!r}, {seen.entry}")
        return known

    def _same(self, what: str, found: Iterable[str], expected: Iterable[str]) -> None:
        found, expected = list(found), list(expected)
        if found != expected:
            raise self._error(f"{what}: {found}, where routing-prefix has {expected}")

    def _error(self, message: str) -> OrderError:
        return OrderError(f"pass {self.passes}: {message}")


def check_passes(passes: Iterable[Pass], label_capacity: int) -> int:
    """Check a whole run, from its first pass; returns the number of passes. Raises `OrderError`."""
    checker = OrderChecker(label_capacity)
    for one in passes:
        checker.check(one)
    return checker.passes
