"""What is timed: one priority calculation of each policy, on a queue of its own that stays between passes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from coresched_sglang.routing_prefix import RoutingPrefix
from sglang.srt.environ import envs
from sglang.srt.managers import schedule_policy
from sglang.srt.managers.schedule_policy import SchedulePolicy
from sglang.srt.mem_cache.common import match_kv_cache

from bench.sglang_priority import names
from bench.sglang_priority.plain import SortedQueue
from bench.sglang_priority.tree import STATE_GRID
from bench.sglang_priority.waiting import NEW_TOKENS
from bench.timing import Effort, operations_lasting, timed

_NOTHING = SimpleNamespace(batch_to_run=None)

Timing = Callable[[], float]
"""Seconds of one priority calculation, timed once more at each call."""

LEAVING = 16  # requests that leave one by one in a timing; the queue is that much shorter at its end
RUNNING = 48  # requests in the running batch, whose labels SGLang's routing-key counts


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
    require_resident(queues)
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
    for count, name in names.OURS_SOME_NEW.items():
        yield name, ours.timing_with_new(count)
    yield names.OURS_ALL_NEW, ours.timing_with_all_new()


def require_resident(queues: Queues) -> None:
    """Raises RuntimeError unless the tree holds the whole context of each resident trajectory."""
    for request in queues.requests:
        context = len(request.origin_input_ids) - NEW_TOKENS
        hit = queues.prefix_hit(request)
        if request.routing_key in queues.labels and hit != context // STATE_GRID * STATE_GRID:
            raise RuntimeError(
                f"the tree must hold {context} tokens of {request.routing_key}, got a hit of {hit}"
            )


class OurPolicy:
    """What the plugin adds to a pass of SGLang's fcfs without refresh, all its labels known."""

    def __init__(self, queues: Queues) -> None:
        self.requests = list(queues.requests)
        self._queues = queues
        self._known = [request for request in self.requests if request.routing_key in queues.labels]
        self._prefix = RoutingPrefix(len(queues.labels), queues.prefix_hit)
        self._detach(self.requests)
        self._prefix.order(list(self._known))
        self._prefix.admit(SimpleNamespace(batch_to_run=SimpleNamespace(reqs=self._known)))
        self._detach(self._known)

    def order(self) -> None:
        """A pass that admits nothing."""
        self._prefix.order(self.requests)
        self._prefix.admit(_NOTHING)

    def timing_with_new(self, count: int) -> Timing:
        """That many requests have just entered, behind the queue that was in order."""
        entered = self._known[:count]

        def prepare() -> None:
            self.order()
            self._detach(entered)
            for request in entered:
                self.requests.remove(request)
            self.requests.extend(entered)

        return self._after(prepare, count)

    def timing_with_all_new(self) -> Timing:
        """Every request has just entered."""

        def prepare() -> None:
            self.requests[:] = self._queues.requests
            self._detach(self.requests)

        return self._after(prepare, len(self._known))

    def _after(self, prepare: Callable[[], None], queries: int) -> Timing:
        def timing() -> float:
            prepare()
            before = self._prefix.counts().queries
            seconds = timed(self.order)
            if self._prefix.counts().queries - before != queries:
                raise RuntimeError(f"the pass must ask {queries} prefix hits, and asked another number")
            return seconds

        return timing

    def _detach(self, requests: list[Any]) -> None:
        """Make them requests that the policy has not seen."""
        for request in requests:
            request.__dict__.pop("_coresched_waiting", None)


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
    """Pass after pass, each after the request at the head has left; the mean of them."""

    def leave_and_pass() -> None:
        for _ in range(LEAVING):
            del requests[0]
            one_pass()

    def timing() -> float:
        one_pass()
        before = list(requests)
        seconds = timed(leave_and_pass) / LEAVING
        requests[:] = before
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
