"""What is timed of a waiting queue alone: what each order does with it in a pass, up to the first request."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from coresched_vllm.queue import WaitingQueue
from coresched_vllm.routing_prefix import RoutingPrefixOrder
from vllm.v1.core.sched.request_queue import FCFSRequestQueue, PriorityRequestQueue

from bench.timing import Effort, operations_lasting, timed
from bench.vllm_priority import names
from bench.vllm_priority.engines import RESIDENT, hit_of, label_of
from bench.vllm_priority.plain import SortedQueue

Timing = Callable[[], float]
"""Seconds of one pass, timed once more at each call."""
_MARKS = ("_coresched_waiting", "plain_hit")
_EXCHANGES = 16  # requests that leave and come in one timing


class Pass:
    """vLLM's own queue, which is in its order by itself. ``queue`` is empty at first."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def order(self) -> None:
        """Whatever is done before vLLM looks at the first request."""

    def admitted(self, request: Any) -> None:
        """What is done when it has left the queue."""

    def whole(self) -> None:
        """One that admits nothing."""
        self.order()
        self.queue.peek_request()


class LongestPrefixPass(Pass):
    def __init__(self, scheduler: Any) -> None:
        super().__init__(FCFSRequestQueue())
        self._scheduler = scheduler

    def order(self) -> None:
        self._scheduler.waiting = self.queue
        self._scheduler.order()


class PlainPass(Pass):
    def __init__(self, scheduler: Any) -> None:
        super().__init__(FCFSRequestQueue())
        self._sorted = SortedQueue(RESIDENT, partial(hit_of, scheduler))
        for number in range(RESIDENT):
            self._sorted.admitted(label_of(number))

    def order(self) -> None:
        self._sorted.order(self.queue)

    def admitted(self, request: Any) -> None:
        self._sorted.admitted(request.session_id)


class OurPass(Pass):
    """What an order of `coresched_vllm` does with the queue, while so many run, with its metrics."""

    def __init__(self, ordering: Any, scheduler: Any) -> None:
        super().__init__(WaitingQueue(lambda request: False))
        self.ordering = ordering
        self._running = scheduler.running
        self._publisher = scheduler._publisher

    def order(self) -> None:
        self.ordering.order(self.queue.ordered)

    def admitted(self, request: Any) -> None:
        self.ordering.admitted([request])

    def publish(self) -> None:
        self._publisher.publish(self.ordering.counts())

    def whole(self) -> None:
        self.ordering.finished(())
        self.order()
        waiting = self.queue
        count = self.ordering.held_back(waiting.preempted, waiting.ordered, self._running)
        with waiting.holding_back(count):
            waiting.peek_request()
        self.ordering.admitted(())
        self.publish()


def passes_of(lpm: Any, prefix: Any, residency: Any) -> dict[str, Pass]:
    """By name; the arguments are schedulers."""
    ordering = RoutingPrefixOrder(RESIDENT, prefix._prefix_hit)
    for number in range(RESIDENT):
        ordering.policy.admitted(label_of(number))
    return {
        names.FCFS: Pass(FCFSRequestQueue()),
        names.PRIORITY: Pass(PriorityRequestQueue()),
        names.LPM: LongestPrefixPass(lpm),
        names.PLAIN: PlainPass(prefix),
        names.RP: OurPass(ordering, prefix),
        names.RESIDENCY: OurPass(residency.ordering, residency),
    }


def timings(
    passes: dict[str, Pass], requests: list[Any], effort: Effort
) -> Iterator[tuple[str, str, Timing]]:
    """Case, order and timing. Each timing finds its queue anew, with all requests known to the order."""
    for each in passes.values():
        enter(each, requests)
    for name in (names.PLAIN, names.LPM):
        if list(passes[name].queue) != list(passes[names.RP].queue):
            raise RuntimeError(f"the order of {names.RP} must be that of {name} here, and is not")
    resident = {label_of(number) for number in range(RESIDENT)}
    if list(passes[names.RESIDENCY].queue) != sorted(
        requests, key=lambda each: each.session_id not in resident
    ):
        raise RuntimeError(
            f"{names.RESIDENCY} must have resident trajectories first, by arrival, and has not"
        )
    for name, each in passes.items():
        enter(each, requests)  # else how many passes last long enough would be found with a slow one
        yield names.NONE_NEW, name, known(each, requests, steady(each.whole, effort))
        yield names.ONE_NEW, name, known(each, requests, partial(exchanged, each))
        yield names.ALL_NEW, name, partial(all_new, each, requests)
    ours = passes[names.RP]
    assert isinstance(ours, OurPass)
    enter(ours, requests)
    for part, action in ((names.ORDER_PART, ours.order), (names.PUBLISH_PART, ours.publish)):
        yield names.NONE_NEW, part, known(ours, requests, steady(action, effort))


def fill(each: Pass, requests: list[Any]) -> None:
    """The queue holds these, which no order has seen."""
    each.queue.remove_requests(list(each.queue))
    for request in requests:
        forget(request)
        each.queue.add_request(request)


def enter(each: Pass, requests: list[Any]) -> None:
    """All are in the queue and known to the order, whatever other orders attached to them."""
    fill(each, requests)
    each.whole()


def known(each: Pass, requests: list[Any], timing: Timing) -> Timing:
    def prepared() -> float:
        enter(each, requests)
        return timing()

    return prepared


def forget(request: Any) -> None:
    for mark in _MARKS:
        with suppress(AttributeError):
            delattr(request, mark)


def steady(one_pass: Callable[[], object], effort: Effort) -> Timing:
    """Pass after pass; the mean of them."""

    def subject(operations: int) -> None:
        for _ in range(operations):
            one_pass()

    operations = operations_lasting(subject, effort.repeat_s)
    return lambda: timed(partial(subject, operations)) / operations


def exchanged(each: Pass) -> float:
    """The first request is admitted, a new one comes, a pass is made; the mean of several."""
    total = 0.0
    for number in range(_EXCHANGES):
        first = each.queue.peek_request()

        def leave() -> None:
            each.admitted(each.queue.pop_request())

        def come(request: Any = first) -> None:
            each.queue.add_request(request)
            each.whole()

        total += timed(leave)
        forget(first)
        first.arrival_time = 1e6 + number  # the last to come
        total += timed(come)
    return total / _EXCHANGES


def all_new(each: Pass, requests: list[Any]) -> float:
    """All have come since the last pass; with entering them into the queue."""
    fill(each, [])
    for request in requests:
        forget(request)

    def come() -> None:
        for request in requests:
            each.queue.add_request(request)
        each.whole()

    return timed(come)
