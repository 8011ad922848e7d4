"""Which candidate takes a request: LBCH over the loads that AIBrix says, and our own picks on their way."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from time import monotonic, perf_counter
from typing import NamedTuple

from coresched.core.checks import check_label
from coresched.core.given import route_given
from coresched.core.ring import LoadBoundedRouter
from coresched.metrics.histogram import DECISION_S, Histogram
from coresched_aibrix.protocol import Candidate


class NoCountsError(ValueError):
    """None of several candidates says how many requests it runs, so that there is no load to bound."""


class Picked(NamedTuple):
    """Where a request goes: a pod and one of its ports; and the pod that is its label's home."""

    pod: str
    port: int
    home: str


class Picker:
    """A ring of all pods seen, of which each request names some. For one event loop.

    L(w) is a candidate's `runningRequests` plus the picks of this process for it in the last `pending_s`
    seconds: AIBrix counts a request only once it has our answer, so that the requests of a burst all come
    with the same counts. A pick that AIBrix has counted within that time counts twice until it is over.

    A pod is forgotten when no request has named it for `forget_s` to twice that long.
    """

    def __init__(
        self,
        *,
        load_bound: float = 1.25,
        virtual_nodes: int = 128,
        slack: int = 0,
        pending_s: float = 0.02,
        forget_s: float = 600.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`clock` is monotonic, in seconds. Raises what LoadBoundedRouter raises."""
        self._ring = LoadBoundedRouter({}, load_bound, virtual_nodes, slack)
        self._pending_s = pending_s
        self._pending: deque[tuple[float, str]] = deque()
        self._pending_of: Counter[str] = Counter()
        self._known: set[str] = set()
        self._seen: set[str] = set()
        self._forget_s = forget_s
        self._forget_at = clock() + forget_s
        self._clock = clock
        self.picks = 0
        self.spilled = 0
        """Picks away from the label's home."""
        self.decision_s = Histogram(DECISION_S)

    @property
    def pods(self) -> int:
        """How many pods are on the ring."""
        return len(self._known)

    def pick(self, label: str, candidates: Sequence[Candidate]) -> Picked:
        """The candidate for a request of this label, now pending there for a while.

        A candidate without a count has none in flight, as in AIBrix's own least-request. Of several ports,
        which share a count, the label has one as its home, so that it stays with the cache behind it.

        Raises ValueError if a candidate is there twice, a port of one is, or an id cannot be on the ring;
        NoCountsError if none of several has a count. Nothing is pending then.
        """
        began = perf_counter()
        loads = {c.id: c.metrics.running_requests for c in candidates}
        if len(loads) < len(candidates):
            twice = next(pod for pod, times in Counter(c.id for c in candidates).items() if times > 1)
            raise ValueError(f"spec.candidates must name each pod once, got {twice!r} again")
        for c in candidates:
            if len(c.ports) > 1 and len(set(c.ports)) < len(c.ports):
                raise ValueError(f"ports of {c.id!r} in spec.candidates must be different, got {c.ports}")
        if len(loads) > 1 and all(load is None for load in loads.values()):
            raise NoCountsError(
                "spec.candidates must have metrics.runningRequests, at least one of them, got none; "
                "start AIBrix with AIBRIX_EXTERNAL_ROUTER_CANDIDATE_METRICS=runningRequests"
            )
        now = self._clock()
        self._meet(loads.keys(), now)
        self._expire(now)
        pending = self._pending_of
        given = {pod: (load or 0) + pending[pod] for pod, load in loads.items()}
        pod, home = route_given(self._ring, label, given)
        if self._pending_s > 0:
            self._pending.append((now, pod))
            pending[pod] += 1
        self.picks += 1
        self.spilled += pod != home
        ports = next(c.ports for c in candidates if c.id == pod)
        port = ports[0] if len(ports) == 1 else int(_ring_of_ports(tuple(ports)).home(label))
        self.decision_s.observe(perf_counter() - began)
        return Picked(pod, port, home)

    def _meet(self, pods: Collection[str], now: float) -> None:
        """Put new pods on the ring, and take those off that no request named for long."""
        if now >= self._forget_at:
            for pod in self._known - self._seen:
                self._ring.remove_worker(pod)
            self._known &= self._seen
            self._seen = set()
            self._forget_at = now + self._forget_s
        self._seen.update(pods)
        # All before any is on the ring, which a name that cannot be there would leave half done.
        new = [check_label(pod, "id in spec.candidates") for pod in pods if pod not in self._known]
        if len(new) > len(self._known) // 8:
            # One by one, each would be weighed against all the others again: many times as long.
            self._ring = LoadBoundedRouter(
                [*self._known, *new], self._ring.load_bound, self._ring.virtual_nodes, self._ring.slack
            )
        else:
            for pod in new:
                self._ring.add_worker(pod)
        self._known.update(new)

    def _expire(self, now: float) -> None:
        while self._pending and now - self._pending[0][0] >= self._pending_s:
            _, pod = self._pending.popleft()
            self._pending_of[pod] -= 1
            if self._pending_of[pod] == 0:
                del self._pending_of[pod]


@lru_cache(maxsize=1024)
def _ring_of_ports(ports: tuple[int, ...]) -> LoadBoundedRouter:
    return LoadBoundedRouter([str(port) for port in ports])
