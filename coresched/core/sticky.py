"""The bound of LBCH without its ring: a label stays where it was served last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from coresched.core.checks import (
    check_count,
    check_finite,
    check_label,
    check_positive,
    check_several,
    check_slack,
)
from coresched.core.shares import LARGEST_WEIGHT

MOST_LABELS = 1 << 20


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker that is routable, or has requests in flight: L(w), its labels, and p / q of its bound."""

    weight: float
    routable: bool = True
    in_flight: int = 0
    labels: int = 0
    p: int = 0
    q: int = 1

    def load(self) -> tuple[float, float]:
        return self.in_flight / self.weight, self.labels / self.weight


class StickyBoundedRouter:
    """A label's first request goes to the least loaded worker, the next ones to the worker of the last one.

    But only while ``L(w) <= alpha (L_tot + 1) weight(w) / sum(weight) + slack``, LBCH's bound; else the label
    moves to the least loaded worker, for good. Least loaded is the least ``L(w) / weight(w)``, and of several
    the one with the fewest labels for its weight, the first if that is equal too. In plain Python: a table
    look-up and a comparison of fractions.

    Unlike LBCH's ring, the table of labels is lost with the process and is of one router alone; beyond
    ``most_labels`` the label that was unused longest is forgotten, which then begins anew. Raises TypeError
    or ValueError for a bad argument: a load bound below 1, a weight that is not above 0 and at most 1000,
    ``most_labels`` below 1, a worker named twice. Not for several threads at once.

    >>> router = StickyBoundedRouter(["w0", "w1"])
    >>> router.route("traj-1"), router.route("traj-2")
    ('w0', 'w1')
    >>> router.release("w0")
    >>> router.route("traj-1")
    'w0'
    """

    def __init__(
        self,
        workers: Iterable[str] | Mapping[str, float],
        load_bound: float = 1.25,
        most_labels: int = MOST_LABELS,
        slack: int = 0,
    ) -> None:
        self._load_bound = check_finite(load_bound, "load_bound")
        if self._load_bound < 1:
            raise ValueError(f"load_bound must be at least 1, got {load_bound!r}")
        self._alpha = Fraction(repr(self._load_bound))
        self._slack = check_slack(slack)
        self._most_labels = check_count(most_labels, "most_labels", 1)
        self._workers: dict[str, _Worker] = {}
        self._routable: dict[str, _Worker] = {}  # in order of addition
        self._worker_of: OrderedDict[str, str] = OrderedDict()  # the label that was unused longest first
        self._total = 0
        weighted = (
            workers.items()
            if isinstance(workers, Mapping)
            else [(name, 1.0) for name in check_several(workers, "workers", "names or a mapping to weights")]
        )
        for name, weight in weighted:
            self._join(check_label(name, "worker"), weight, f"weight of {name!r}")
        self._share()

    @property
    def load_bound(self) -> float:
        """alpha."""
        return self._load_bound

    @property
    def slack(self) -> int:
        """Requests that a worker may have beyond alpha's share."""
        return self._slack

    def route(self, label: str, exclude: Iterable[str] = ()) -> str:
        """The worker for a request of the label, counted in flight there until `release`.

        ``exclude``: workers not to use for this one request; the bound stays that of all routable workers.
        Raises TypeError or ValueError if label is not a label, LookupError if ``exclude`` names an unknown
        worker or leaves none; nothing is counted then.
        """
        check_label(label, "label")
        excluded = frozenset(check_several(exclude, "exclude", "a collection of worker names"))
        for one in excluded:
            self._known(one, "exclude")
        name = self._worker_of.get(label)
        worker = None if name is None or name in excluded else self._routable.get(name)
        if name is None or worker is None or not self._within_bound(worker):
            name = self._least_loaded(label, excluded)
            worker = self._routable[name]
            self._place(label, name)
        else:
            self._worker_of.move_to_end(label)
        worker.in_flight += 1
        self._total += 1
        return name

    def order(self, label: str, exclude: Iterable[str] = ()) -> list[str]:
        """The workers in the order in which to try them for a request of the label; nothing is counted.

        First the one that `route` would choose, then those within the bound, then the others, the least
        loaded first. After `hold` and `settle` of the first all is as after `route`. Raises as `route` does.
        """
        check_label(label, "label")
        excluded = frozenset(check_several(exclude, "exclude", "a collection of worker names"))
        for one in excluded:
            self._known(one, "exclude")
        candidates = self._candidates(label, excluded)
        last = self._worker_of.get(label)

        def load(name: str) -> tuple[float, float]:
            worker = self._routable[name]  # a label that moves is counted no more where it was
            return worker.in_flight / worker.weight, (worker.labels - (name == last)) / worker.weight

        candidates.sort(key=load)
        first = candidates[0]
        if last is not None and last in candidates and self._within_bound(self._routable[last]):
            first = last
        candidates.remove(first)
        candidates.sort(key=lambda name: not self._within_bound(self._routable[name]))
        return [first, *candidates]

    def release(self, worker: str) -> None:
        """End one request in flight on the worker; exactly once for each `route`, however it ended.

        A removed worker counts as known until its last request in flight is released. Raises LookupError for
        an unknown worker, RuntimeError for one without requests in flight.
        """
        found = self._known(worker, "worker")
        if found.in_flight == 0:
            raise RuntimeError(f"worker {worker!r} has no request in flight to release")
        found.in_flight -= 1
        if found.routable:
            self._total -= 1
        elif found.in_flight == 0:
            del self._workers[worker]

    def hold(self, worker: str) -> None:
        """Count one request in flight on the worker without a choice: one that was placed in an earlier life.

        To be ended by `release`. Raises LookupError for an unknown worker.
        """
        found = self._known(worker, "worker")
        found.in_flight += 1
        self._total += found.routable

    def home(self, label: str) -> str | None:
        """Where the label was served last; None if that is not known. Raises as `route` does for a label."""
        return self._worker_of.get(check_label(label, "label"))

    def settle(self, label: str, worker: str) -> None:
        """The label was served by the worker last, in an earlier life. Raises LookupError, or as `home`.

        The label of a worker that is not routable begins anew, as after `remove_worker`.
        """
        self._known(worker, "worker")
        check_label(label, "label")
        if worker in self._routable:
            self._place(label, worker)
        else:
            self.forget(label)

    def forget(self, label: str) -> None:
        """The label's trajectory has ended; nothing happens if it is not known."""
        name = self._worker_of.pop(label, None)
        if name is not None and name in self._workers:
            self._workers[name].labels -= 1

    def loads(self) -> dict[str, int]:
        """Requests in flight by routable worker, in order of addition."""
        return {name: worker.in_flight for name, worker in self._routable.items()}

    def workers(self) -> list[str]:
        """Names of the routable workers, in order of addition."""
        return list(self._routable)

    def add_worker(self, name: str, weight: float = 1.0) -> None:
        """Make a worker routable; no label moves to it but by its load.

        One that was removed with requests in flight resumes with those not yet released. Raises TypeError or
        ValueError for a bad name or weight, ValueError if the worker is routable already.
        """
        self._join(check_label(name, "name"), weight, "weight")
        self._share()

    def remove_worker(self, name: str) -> None:
        """Route nothing more to a worker; its requests in flight may still be released.

        Its labels begin anew, on the least loaded. Raises LookupError if the worker is not routable.
        """
        if name not in self._routable:
            raise LookupError(f"name must be one of the workers {self.workers()!r}, got {name!r}")
        worker = self._routable.pop(name)
        worker.routable = False
        worker.labels = 0
        self._total -= worker.in_flight
        for label in [label for label, its in self._worker_of.items() if its == name]:
            del self._worker_of[label]
        if worker.in_flight == 0:
            del self._workers[name]
        self._share()

    def _within_bound(self, worker: _Worker) -> bool:
        return (worker.in_flight - self._slack) * worker.q <= worker.p * (self._total + 1)

    def _least_loaded(self, label: str, excluded: frozenset[str]) -> str:
        candidates = self._candidates(label, excluded)
        self.forget(label)  # its last worker counts it no more
        return min(candidates, key=lambda name: self._routable[name].load())

    def _candidates(self, label: str, excluded: frozenset[str]) -> list[str]:
        if not self._routable:
            raise LookupError(f"a worker must be added before {label!r} can be routed, there is none")
        candidates = [name for name in self._routable if name not in excluded]
        if not candidates:
            raise LookupError(f"exclude must leave one of the workers, got all of {self.workers()!r}")
        return candidates

    def _place(self, label: str, name: str) -> None:
        self.forget(label)
        self._worker_of[label] = name
        self._workers[name].labels += 1
        if len(self._worker_of) > self._most_labels:
            self.forget(next(iter(self._worker_of)))

    def _known(self, name: str, argument: str) -> _Worker:
        worker = self._workers.get(name)
        if worker is None:
            raise LookupError(f"{argument} must be among the workers {list(self._workers)!r}, got {name!r}")
        return worker

    def _join(self, name: str, weight: float, argument: str) -> None:
        number = check_positive(weight, argument)
        if number > LARGEST_WEIGHT:
            raise ValueError(f"{argument} must be at most {LARGEST_WEIGHT}, got {weight!r}")
        if name in self._routable:
            raise ValueError(f"a worker must be added once only, got {name!r} again")
        worker = self._workers.setdefault(name, _Worker(number))
        worker.weight, worker.routable = number, True
        self._routable[name] = worker
        self._total += worker.in_flight

    def _share(self) -> None:
        """Set p / q = alpha weight / sum(weight) of each worker; it is within its bound iff
        (L - slack) q <= p (L_tot + 1)."""
        exact = {name: Fraction(repr(worker.weight)) for name, worker in self._routable.items()}
        total = sum(exact.values())
        for name, weight in exact.items():
            share = self._alpha * weight / total
            self._routable[name].p, self._routable[name].q = share.numerator, share.denominator
