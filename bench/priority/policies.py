"""What is timed: one priority calculation of each policy, on a waiting queue of its own that stays between passes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from sglang.srt.environ import envs
from sglang.srt.managers import schedule_policy
from sglang.srt.managers.schedule_policy import SchedulePolicy
from sglang.srt.mem_cache.common import match_kv_cache

from bench.priority import names
from bench.priority.plain import SortedQueue
from bench.timing import Effort, operations_lasting, timed
from coresched.core import AttachedOrder, RoutingPrefixPolicy, Waiting

Timing = Callable[[], float]
"""Seconds of one priority calculation, timed once more at each call."""

RUNNING = 48  # requests in the running batch, whose labels SGLang's routing-key counts
ATTRIBUTE = "_coresched"


class Queues:
    """The waiting requests and the tree of one case, and a policy of SGLang's over them."""

    def __init__(self, requests: list[Any], tree: Any, running: Any, labels: list[str]) -> None:
        self.requests = requests
        self.tree = tree
        self.running = running
        self.labels = labels

    def sglang(self, name: str) -> Callable[[], object]:
        """One pass of SGLang's policy of that name."""
        policy = SchedulePolicy(name, self.tree, False, False, False)
        return partial(policy.calc_priority, list(self.requests), self.running)

    def prefix_hit(self, request: Any) -> int:
        match_kv_cache(request, self.tree)
        hit: int = request.num_matched_prefix_tokens
        return hit


def timings(queues: Queues, effort: Effort) -> Iterator[tuple[str, Timing]]:
    """Each policy's name and timing. What a policy needs at first is done before its first timing."""
    passes = schedule_policy.WAITING_PREFIX_REFRESH_INTERVAL
    is_long = len(queues.requests) > schedule_policy.WAITING_QUEUE_PREFIX_MATCH_MAX
    yield names.FCFS, steady(queues.sglang("fcfs"), effort, passes)
    yield names.FCFS_REFRESHING, refreshing(queues)
    yield names.FCFS_NO_REFRESH, within(no_refresh, lambda: steady(queues.sglang("fcfs"), effort))
    # Above its limit lpm is fcfs, refresh included.
    yield names.LPM, steady(queues.sglang("lpm"), effort, passes if is_long else 1)
    yield names.LPM_NO_LIMIT, within(no_limit, lambda: steady(queues.sglang("lpm"), effort))
    yield names.DFS_WEIGHT, steady(queues.sglang("dfs-weight"), effort)
    yield names.ROUTING_KEY, within(no_refresh, lambda: steady(queues.sglang("routing-key"), effort))
    ours, plain = OurPolicy(queues), PlainPolicy(queues)
    ours.order()
    plain.order()
    if ours.requests != plain.requests:
        raise RuntimeError("the order of the compiled policy must be that of the plain one, and is not")
    yield names.PLAIN_NONE_NEW, steady(plain.order, effort)
    yield names.PLAIN_ONE_LEFT, one_left(plain.requests, plain.order)
    yield names.OURS_NONE_NEW, steady(ours.order, effort)
    yield names.OURS_ONE_LEFT, one_left(ours.requests, ours.order)
    yield names.OURS_SOME_NEW, ours.timing_with_new(names.NEW)
    yield names.OURS_ALL_NEW, ours.timing_with_all_new()


class OurPolicy:
    """RP as it runs in SGLang, over one queue; the label set holds every resident trajectory."""

    def __init__(self, queues: Queues) -> None:
        self.requests = list(queues.requests)
        self._queues = queues
        policy = RoutingPrefixPolicy(len(queues.labels))
        for label in queues.labels:
            policy.admitted(label)
        self._known = [request for request in self.requests if request.routing_key in policy]
        self._attached = AttachedOrder(policy, ATTRIBUTE)
        for request in self.requests:
            _detach(request)

    def order(self) -> None:
        self._attached.order(self.requests, _enter, self._queues.prefix_hit)

    def timing_with_new(self, count: int) -> Timing:
        """That many requests have just entered, behind the queue that was in order."""
        entered = self._known[:count]

        def prepare() -> None:
            for request in entered:
                _detach(request)
                self.requests.remove(request)
            self.requests.extend(entered)

        return self._after(prepare, count)

    def timing_with_all_new(self) -> Timing:
        """Every request has just entered."""

        def prepare() -> None:
            self.requests[:] = self._queues.requests
            for request in self.requests:
                _detach(request)

        return self._after(prepare, len(self._known))

    def _after(self, prepare: Callable[[], None], queries: int) -> Timing:
        def timing() -> float:
            prepare()
            before = self._attached.queries
            seconds = timed(self.order)
            if self._attached.queries - before != queries:
                raise RuntimeError(f"the pass must ask {queries} prefix hits, and asked another number")
            return seconds

        return timing


class PlainPolicy:
    """The same in plain Python."""

    def __init__(self, queues: Queues) -> None:
        self.requests = list(queues.requests)
        self._plain = SortedQueue(len(queues.labels), queues.prefix_hit)
        for label in queues.labels:
            self._plain.admitted(label)

    def order(self) -> None:
        self._plain.order(self.requests)


def one_left(requests: list[Any], one_pass: Callable[[], object]) -> Timing:
    """The request at the head was admitted since the last pass."""

    def timing() -> float:
        one_pass()
        head = requests.pop(0)
        seconds = timed(one_pass)
        requests.insert(0, head)
        return seconds

    return timing


def steady(one_pass: Callable[[], object], effort: Effort, multiple: int = 1) -> Timing:
    """Pass after pass, in a multiple of that many; the mean of them."""

    def subject(operations: int) -> None:
        for _ in range(operations):
            one_pass()

    operations = operations_lasting(subject, effort.repeat_s)
    operations = -(-operations // multiple) * multiple
    return lambda: timed(partial(subject, operations)) / operations


def refreshing(queues: Queues) -> Timing:
    """The first pass of a policy, in which SGLang touches the prefixes at the head of the queue."""

    def timing() -> float:
        return timed(queues.sglang("fcfs"))

    return timing


def within(setting: Callable[[], AbstractContextManager[object]], make: Callable[[], Timing]) -> Timing:
    """The timing of passes that are made under a setting of SGLang."""
    with setting():
        timing = make()

    def timing_within() -> float:
        with setting():
            return timing()

    return timing_within


def no_refresh() -> AbstractContextManager[object]:
    """No pass touches prefixes; as shipped 1 in 32 does."""
    context: AbstractContextManager[object] = envs.SGLANG_ENABLE_WAITING_PREFIX_REFRESH.override(False)
    return context


@contextmanager
def no_limit() -> Iterator[None]:
    """However long the queue, lpm matches prefixes; as shipped it is fcfs above 128 requests."""
    limit = schedule_policy.WAITING_QUEUE_PREFIX_MATCH_MAX
    schedule_policy.WAITING_QUEUE_PREFIX_MATCH_MAX = sys.maxsize
    try:
        yield
    finally:
        schedule_policy.WAITING_QUEUE_PREFIX_MATCH_MAX = limit


def _enter(request: Any) -> Waiting:
    return Waiting(request.rid, request.routing_key, request.time_stats.wait_queue_entry_time)


def _detach(request: Any) -> None:
    request.__dict__.pop(ATTRIBUTE, None)
