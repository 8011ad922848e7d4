"""StickyBoundedRouter does as its rule read literally, over any life of workers, labels and requests."""

from fractions import Fraction

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from coresched.core.sticky import StickyBoundedRouter

NAMES = st.sampled_from(["w0", "w1", "w2", "w3"])
LABELS = st.sampled_from([f"k{i}" for i in range(6)])
WEIGHTS = st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.0])
MOST_LABELS = 4


class Literal:
    """The rule, with fractions and counts made anew each time."""

    def __init__(self, load_bound: float, slack: int) -> None:
        self.alpha = Fraction(repr(load_bound))
        self.slack = slack
        self.weights: dict[str, Fraction] = {}
        self.flights: list[str] = []
        self.last: dict[str, str] = {}  # in order of use

    def route(self, label: str, exclude: frozenset[str]) -> str:
        worker = self.last.get(label)
        if worker is None or worker in exclude or not self.within(worker):
            self.last.pop(label, None)
            worker = min((name for name in self.weights if name not in exclude), key=self.load)
        self.use(label, worker)
        self.flights.append(worker)
        return worker

    def use(self, label: str, worker: str) -> None:
        self.last.pop(label, None)
        self.last[label] = worker
        if len(self.last) > MOST_LABELS:
            del self.last[next(iter(self.last))]

    def within(self, worker: str) -> bool:
        total = sum(name in self.weights for name in self.flights)
        share = self.weights[worker] / sum(self.weights.values())
        return self.flights.count(worker) <= self.alpha * share * (total + 1) + self.slack

    def load(self, worker: str) -> tuple[Fraction, Fraction]:
        labels = list(self.last.values()).count(worker)
        return self.flights.count(worker) / self.weights[worker], labels / self.weights[worker]


class Sticky(RuleBasedStateMachine):
    @initialize(
        load_bound=st.sampled_from([1.0, 1.1, 1.25, 2.0, 1e6]), weight=WEIGHTS, slack=st.integers(0, 2)
    )
    def make(self, load_bound: float, weight: float, slack: int) -> None:
        self.router = StickyBoundedRouter({"w0": weight, "w1": 1.0}, load_bound, MOST_LABELS, slack)
        self.literal = Literal(load_bound, slack)
        self.literal.weights = {"w0": Fraction(repr(weight)), "w1": Fraction(1)}

    @rule(label=LABELS, exclude=st.frozensets(NAMES, max_size=2))
    def route(self, label: str, exclude: frozenset[str]) -> None:
        known = {*self.literal.weights, *self.literal.flights}
        if not exclude <= known or not self.literal.weights.keys() - exclude:
            with pytest.raises(LookupError):
                self.router.route(label, exclude)
        else:
            assert self.router.route(label, exclude) == self.literal.route(label, exclude)
        self.same()

    @rule(label=LABELS, exclude=st.frozensets(NAMES, max_size=2))
    def order(self, label: str, exclude: frozenset[str]) -> None:
        known = {*self.literal.weights, *self.literal.flights}
        if not exclude <= known or not self.literal.weights.keys() - exclude:
            with pytest.raises(LookupError):
                self.router.order(label, exclude)
        else:
            first, *others = self.router.order(label, exclude)
            assert sorted([first, *others]) == sorted(self.literal.weights.keys() - exclude)
            beyond = [not self.literal.within(name) for name in others]
            assert beyond == sorted(beyond)
            self.same()
            self.router.hold(first)
            self.router.settle(label, first)
            assert first == self.literal.route(label, exclude)
        self.same()

    @precondition(lambda self: self.literal.flights)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.literal.flights)))
        self.router.release(worker)
        self.literal.flights.remove(worker)
        self.same()

    @rule(worker=NAMES, label=LABELS)
    def goes_on_from_an_earlier_life(self, worker: str, label: str) -> None:
        if worker in self.literal.weights:
            self.router.hold(worker)
            self.router.settle(label, worker)
            self.literal.flights.append(worker)
            self.literal.use(label, worker)
        elif worker in self.literal.flights:  # removed, with requests that are still to be released
            self.router.settle(label, worker)
            self.literal.last.pop(label, None)
        else:
            with pytest.raises(LookupError):
                self.router.hold(worker)
            with pytest.raises(LookupError):
                self.router.settle(label, worker)
        self.same()

    @rule(label=LABELS)
    def forget(self, label: str) -> None:
        self.router.forget(label)
        self.literal.last.pop(label, None)
        self.same()

    @rule(worker=NAMES, weight=WEIGHTS)
    def add(self, worker: str, weight: float) -> None:
        if worker in self.literal.weights:
            with pytest.raises(ValueError, match="once only"):
                self.router.add_worker(worker, weight)
        else:
            self.router.add_worker(worker, weight)
            self.literal.weights[worker] = Fraction(repr(weight))
        self.same()

    @rule(worker=NAMES)
    def remove(self, worker: str) -> None:
        if worker not in self.literal.weights:
            with pytest.raises(LookupError):
                self.router.remove_worker(worker)
        else:
            self.router.remove_worker(worker)
            del self.literal.weights[worker]
            self.literal.last = {label: its for label, its in self.literal.last.items() if its != worker}
        self.same()

    def same(self) -> None:
        assert self.router.workers() == list(self.literal.weights)
        loads = {name: self.literal.flights.count(name) for name in self.literal.weights}
        assert self.router.loads() == loads
        for label in [f"k{i}" for i in range(6)]:
            assert self.router.home(label) == self.literal.last.get(label)


TestSticky = Sticky.TestCase
TestSticky.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
