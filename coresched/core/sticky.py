"""The bound of LBCH without its ring: a label stays where it was served last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from fractions import Fraction

from coresched.core.checks import check_count, check_finite, check_label, check_positive

MOST_LABELS = 1 << 20


class StickyBoundedRouter:
    """A label's first request goes to the least loaded worker, the next ones to the worker of the last one.

    But only while ``L(w) / weight(w) <= alpha (L_tot + 1) / sum(weight)``, LBCH's bound; else the label moves
    to the least loaded worker, for good. Least loaded is the least ``L(w) / weight(w)``, and of several the
    one with the fewest labels for its weight, the first if that is equal too. In plain Python: a table
    look-up and a comparison of fractions.

    Unlike LBCH's ring, the table of labels is lost with the process and is of one router alone; beyond
    ``most_labels`` the label that was unused longest is forgotten, which then begins anew. Raises ValueError
    for no worker, a load bound below 1, a weight that is not positive, or ``most_labels`` below 1.
    """

    def __init__(
        self,
        workers: Iterable[str] | Mapping[str, float],
        load_bound: float = 1.25,
        most_labels: int = MOST_LABELS,
    ) -> None:
        if check_finite(load_bound, "load_bound") < 1:
            raise ValueError(f"load_bound must be at least 1, got {load_bound!r}")
        self.load_bound = load_bound
        self._most_labels = check_count(most_labels, "most_labels", 1)
        names = [check_label(name, "name") for name in workers]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"workers must be at least one, each once, got {names!r}")
        self._weights = {
            name: check_positive(workers[name] if isinstance(workers, Mapping) else 1.0, "weight")
            for name in names
        }
        exact = {name: Fraction(repr(float(weight))) for name, weight in self._weights.items()}
        alpha, total = Fraction(repr(float(load_bound))), sum(exact.values())
        shares = {name: alpha * weight / total for name, weight in exact.items()}
        self._shares = {name: (share.numerator, share.denominator) for name, share in shares.items()}
        self._in_flight = dict.fromkeys(names, 0)
        self._placed = dict.fromkeys(names, 0)
        self._worker_of: OrderedDict[str, str] = OrderedDict()  # the label that was unused longest first
        self._total = 0

    def route(self, label: str, exclude: Iterable[str] = ()) -> str:
        """The worker for a request of the label, counted in flight there until `release`.

        Raises LookupError if ``exclude`` names no worker, or leaves none.
        """
        check_label(label, "label")
        excluded = frozenset(exclude)
        if not excluded <= self._in_flight.keys():
            raise LookupError(f"exclude must be among the workers, got {sorted(excluded)!r}")
        worker = self._worker_of.get(label)
        if worker is None or worker in excluded or not self._within_bound(worker):
            worker = self._move(label, worker, excluded)
        self._worker_of.move_to_end(label)
        self._in_flight[worker] += 1
        self._total += 1
        return worker

    def release(self, worker: str) -> None:
        """End one request in flight. Raises LookupError, or RuntimeError if there is none."""
        if worker not in self._in_flight:
            raise LookupError(f"worker must be among the workers, got {worker!r}")
        if self._in_flight[worker] == 0:
            raise RuntimeError(f"worker {worker!r} has no request in flight to release")
        self._in_flight[worker] -= 1
        self._total -= 1

    def home(self, label: str) -> str | None:
        """Where the label was served last; None if that is not known."""
        return self._worker_of.get(check_label(label, "label"))

    def forget(self, label: str) -> None:
        """The label's trajectory has ended; nothing if it is not known."""
        worker = self._worker_of.pop(label, None)
        if worker is not None:
            self._placed[worker] -= 1

    def loads(self) -> dict[str, int]:
        """Requests in flight by worker."""
        return dict(self._in_flight)

    def _within_bound(self, worker: str) -> bool:
        p, q = self._shares[worker]
        return self._in_flight[worker] * q <= p * (self._total + 1)

    def _move(self, label: str, last: str | None, excluded: frozenset[str]) -> str:
        candidates = [name for name in self._in_flight if name not in excluded]
        if not candidates:
            raise LookupError("exclude must leave one of the workers")
        if last is not None:
            self._placed[last] -= 1
        elif len(self._worker_of) == self._most_labels:
            self.forget(next(iter(self._worker_of)))
        worker = min(candidates, key=self._load)
        self._placed[worker] += 1
        self._worker_of[label] = worker
        return worker

    def _load(self, worker: str) -> tuple[float, float]:
        weight = self._weights[worker]
        return self._in_flight[worker] / weight, self._placed[worker] / weight
