"""The scheduling core in plain Python: its readable specification, to which the compiled classes are held.

Each class gives the answers of its compiled twin and is written for reading, not for speed.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from typing import Any

import mmh3

from coresched.core.checks import check_count, check_finite, check_label, check_positive, check_slack


def as_written(number: float) -> Fraction:
    """The decimal number the user wrote, not the double nearest to it."""
    return Fraction(repr(float(number)))


def hashed(text: str, seed: int) -> int:
    """The first 64 bits of MurmurHash3_x64_128, unsigned."""
    return mmh3.hash64(text, seed=seed, x64arch=True, signed=False)[0]


class ReferenceRouter:
    """LBCH: worker w is eligible iff ``L(w) <= alpha (L_tot + 1) weight(w) / sum(weight) + slack``."""

    def __init__(
        self,
        workers: Iterable[str] | Mapping[str, float],
        load_bound: float = 1.25,
        virtual_nodes: int = 128,
        slack: int = 0,
    ) -> None:
        if check_finite(load_bound, "load_bound") < 1:
            raise ValueError(f"load_bound must be at least 1, got {load_bound!r}")
        self.load_bound = load_bound
        self.virtual_nodes = check_count(virtual_nodes, "virtual_nodes", 1)
        self.slack = check_slack(slack)
        self._weights: dict[str, Fraction] = {}  # routable workers, in order of addition
        self._in_flight: dict[str, int] = {}  # routable workers, and removed ones with requests in flight
        self._points: list[tuple[int, str]] = []  # (position, worker), ascending
        for name in workers:
            self.add_worker(name, workers[name] if isinstance(workers, Mapping) else 1.0)

    def add_worker(self, name: str, weight: float = 1.0) -> None:
        check_label(name, "name")
        if check_positive(weight, "weight") > 1000:
            raise ValueError(f"weight must be at most 1000, got {weight!r}")
        if name in self._weights:
            raise ValueError(f"a worker must be added once only, got {name!r} again")
        self._weights[name] = as_written(weight)
        self._in_flight.setdefault(name, 0)
        count = max(1, round(self.virtual_nodes * as_written(weight)))
        self._points.extend((hashed(f"{name}#{i}", seed=0), name) for i in range(count))
        self._points.sort()

    def remove_worker(self, name: str) -> None:
        if name not in self._weights:
            raise LookupError(f"name must be one of the workers, got {name!r}")
        del self._weights[name]
        self._points = [(position, worker) for position, worker in self._points if worker != name]
        self._forget_if_idle(name)

    def workers(self) -> list[str]:
        return list(self._weights)

    def loads(self) -> dict[str, int]:
        return {worker: self._in_flight[worker] for worker in self._weights}

    def home(self, label: str) -> str:
        return self._clockwise(label)[0]

    def route(self, label: str, exclude: Iterable[str] = ()) -> str:
        clockwise = self._clockwise(label)
        excluded = set(exclude)
        if excluded - self._in_flight.keys():
            raise LookupError(f"exclude must be among the workers, got {excluded!r}")
        candidates = [worker for worker in clockwise if worker not in excluded]
        if not candidates:
            raise LookupError("exclude must leave one of the workers")
        chosen = next((worker for worker in candidates if self._eligible(worker)), candidates[0])
        self._in_flight[chosen] += 1
        return chosen

    def route_given(self, label: str, loads: Mapping[str, int]) -> tuple[str, str]:
        alone = ReferenceRouter({}, self.load_bound, self.virtual_nodes, self.slack)
        if check_label(label, "label") and not loads:
            raise ValueError("loads must have at least one worker, got none")
        for worker, load in loads.items():
            if worker not in self._weights:
                raise LookupError(f"loads must be of the workers, got {worker!r}")
            alone.add_worker(worker, float(self._weights[worker]))
            alone._in_flight[worker] = check_count(load, "a load", 0)
        return alone.route(label), alone.home(label)

    def order(self, label: str, exclude: Iterable[str] = ()) -> list[str]:
        clockwise = self._clockwise(label)
        excluded = set(exclude)
        if excluded - self._in_flight.keys():
            raise LookupError(f"exclude must be among the workers, got {excluded!r}")
        candidates = [worker for worker in clockwise if worker not in excluded]
        if not candidates:
            raise LookupError("exclude must leave one of the workers")
        return sorted(candidates, key=lambda worker: not self._eligible(worker))  # which is stable

    def release(self, worker: str) -> None:
        if worker not in self._in_flight:
            raise LookupError(f"worker must be among the workers, got {worker!r}")
        if self._in_flight[worker] == 0:
            raise RuntimeError(f"worker {worker!r} has no request in flight to release")
        self._in_flight[worker] -= 1
        self._forget_if_idle(worker)

    def hold(self, worker: str) -> None:
        if worker not in self._in_flight:
            raise LookupError(f"worker must be among the workers, got {worker!r}")
        self._in_flight[worker] += 1

    def _eligible(self, worker: str) -> bool:
        total = sum(self.loads().values())
        share = self._weights[worker] / sum(self._weights.values())
        return self._in_flight[worker] <= as_written(self.load_bound) * share * (total + 1) + self.slack

    def _clockwise(self, label: str) -> list[str]:
        """Each worker once, from the label on."""
        position = hashed(check_label(label, "label"), seed=1)
        if not self._points:
            raise LookupError(f"a worker must be added before {label!r} can be routed, there is none")
        after = [worker for point, worker in self._points if point >= position]
        before = [worker for point, worker in self._points if point < position]
        return list(dict.fromkeys(after + before))

    def _forget_if_idle(self, worker: str) -> None:
        if worker not in self._weights and self._in_flight[worker] == 0:
            del self._in_flight[worker]


class ReferenceWaiting:
    """A waiting request; ``hit`` is None until asked."""

    def __init__(self, id: str, label: str | None, queued_at: float) -> None:
        self.id = id
        self.label = None if label is None else check_label(label, "label")
        self.queued_at = check_finite(queued_at, "queued_at")
        self.hit: int | None = None


class ReferencePrefixPolicy:
    """RP: ascending ``(0, -l, t)`` for labels in the label set and ``(1, 0, t)`` for the others."""

    def __init__(self, label_capacity: int) -> None:
        self.label_capacity = check_count(label_capacity, "label_capacity", 1)
        self._labels: list[str] = []  # oldest touch first

    def order(
        self, waiting: Iterable[ReferenceWaiting], prefix_hit: Callable[[ReferenceWaiting], int]
    ) -> list[ReferenceWaiting]:
        requests = list(waiting)
        for request in requests:
            if request.label in self._labels and request.hit is None:
                request.hit = check_count(prefix_hit(request), "prefix_hit(request)", 0)
        return sorted(requests, key=self.key)

    def admitted(self, label: str | None) -> None:
        if label is None:
            return
        check_label(label, "label")
        self._labels = [*(other for other in self._labels if other != label), label][-self.label_capacity :]

    def forget(self, label: str) -> None:
        self._labels = [other for other in self._labels if other != label]

    def labels(self) -> list[str]:
        return list(self._labels)

    def __contains__(self, label: object) -> bool:
        return label in self._labels

    def key(self, request: ReferenceWaiting) -> tuple[int, int, float]:
        if request.label in self._labels and request.hit is not None:
            return 0, -request.hit, request.queued_at
        return 1, 0, request.queued_at


class ReferenceAttachedOrder:
    """RP on an engine's list of its own requests: ascending (rank, RP key) of what is attached to each."""

    def __init__(
        self,
        policy: ReferencePrefixPolicy,
        attribute: str,
        *,
        rank: str | None = None,
        highest_rank_first: bool = True,
    ) -> None:
        self.policy = policy
        self.passes = self.queries = self.changed = 0
        self._attribute = attribute
        self._rank = rank
        self._sign = -1 if highest_rank_first else 1

    def order(
        self,
        requests: list[Any],
        enter: Callable[[Any], ReferenceWaiting],
        prefix_hit: Callable[[Any], int],
    ) -> bool:
        self.passes += 1
        before = list(requests)
        for request in before:
            if getattr(request, self._attribute, None) is None:
                setattr(request, self._attribute, enter(request))
        for request in before:
            waiting = getattr(request, self._attribute)
            if waiting.label in self.policy and waiting.hit is None:
                self.queries += 1
                waiting.hit = check_count(prefix_hit(request), "prefix_hit(request)", 0)
        requests.sort(key=self._key)
        is_changed = any(now is not then for now, then in zip(requests, before, strict=True))
        self.changed += is_changed
        return is_changed

    def _key(self, request: Any) -> tuple[int, tuple[int, int, float]]:
        rank = 0 if self._rank is None else getattr(request, self._rank)
        return self._sign * rank, self.policy.key(getattr(request, self._attribute))


class ReferenceResidencyPolicy:
    """Routing-residency: ascending ``(0, t)`` for labels that are resident and ``(1, t)`` for the others."""

    def __init__(self) -> None:
        self._labels: set[str] = set()

    def order(self, waiting: Iterable[ReferenceWaiting]) -> list[ReferenceWaiting]:
        return sorted(waiting, key=lambda request: (request.label not in self._labels, request.queued_at))

    def resident(self, label: str) -> None:
        self._labels.add(check_label(label, "label"))

    def evicted(self, label: str) -> None:
        self._labels.discard(label)

    def clear(self) -> None:
        self._labels.clear()

    def labels(self) -> frozenset[str]:
        return frozenset(self._labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __contains__(self, label: object) -> bool:
        return label in self._labels


class ReferenceTurnGaps:
    """Expected back after a gap g: ``S(g) - S(inf) >= p S(g)``, S by Kaplan and Meier's product limit."""

    def __init__(self, least_probability: float = 0.25, window: int = 4096) -> None:
        self.least_probability = least_probability
        self.window = check_count(window, "window", 1)
        self._gaps: list[dict[str, Any]] = []  # label, began, length: None while it is open
        self._now = 0
        self._estimated = -1
        self._changes = 0

    def ended(self, label: str, now: int) -> None:
        self._advance(now)
        for gap in self._gaps:
            if gap["label"] == label and gap["length"] is None:
                gap["length"] = "superseded"
        self._gaps.append({"label": check_label(label, "label"), "began": now, "length": None})
        self._gaps = self._gaps[-self.window :]
        self._changes += 1

    def began(self, label: str, now: int) -> None:
        self._advance(now)
        gap = self._open(check_label(label, "label"))
        if gap is not None:
            gap["length"] = now - gap["began"]
            self._changes += 1

    def forget(self, label: str) -> None:
        gap = self._open(label)
        if gap is not None:
            gap["length"] = "superseded"
            self._changes += 1

    def expected(self, label: str, now: int) -> bool:
        self._advance(now)
        gap = self._open(label)
        return gap is not None and now - gap["began"] <= self.limit

    @property
    def limit(self) -> int:
        if self._changes and 32 * self._changes >= len(self._gaps):
            self._changes = 0
            self._estimated = self._longest_expected()
        return self._estimated

    def _advance(self, now: int) -> None:
        if now < self._now:
            raise ValueError(f"now must not fall, got {now} after {self._now}")
        self._now = now

    def _open(self, label: str) -> dict[str, Any] | None:
        return next((gap for gap in self._gaps if gap["label"] == label and gap["length"] is None), None)

    def _longest_expected(self) -> int:
        counted = [gap for gap in self._gaps if gap["length"] != "superseded"]
        lengths = [self._now - gap["began"] if gap["length"] is None else gap["length"] for gap in counted]
        ended = [gap["length"] for gap in counted if gap["length"] is not None]
        share = 1.0
        before: dict[int, float] = {}
        for length in sorted(set(ended)):
            before[length] = share
            share *= 1.0 - ended.count(length) / sum(other >= length for other in lengths)
        return max((g for g, s in before.items() if s - share >= self.least_probability * s), default=-1)


class ReferenceChainQueue:
    """CAAS: ascending ``(floor(a / B), -n, floor(mean(tau) / D_I), e)``, fixed when the job joins."""

    def __init__(self, band_s: float = 30.0, bucket_s: float = 1.0) -> None:
        self.band_s = check_positive(band_s, "band_s")
        self.bucket_s = check_positive(bucket_s, "bucket_s")
        self._keys: dict[Any, tuple[int, int, int, int]] = {}
        self._entered = 0

    def push(self, job: Hashable, *, requested_at: float, turns: int, mean_inference_s: float) -> None:
        band = check_finite(requested_at, "requested_at") / self.band_s
        check_count(turns, "turns", 0)
        bucket = check_finite(mean_inference_s, "mean_inference_s") / self.bucket_s
        if mean_inference_s < 0 or math.isinf(band) or math.isinf(bucket):
            raise ValueError(f"the key must be finite, got {requested_at!r} s and {mean_inference_s!r} s")
        if job in self._keys:
            raise ValueError(f"job must not be waiting already, got {job!r}")
        self._keys[job] = (math.floor(band), -turns, math.floor(bucket), self._entered)
        self._entered += 1

    def peek(self) -> Any:
        if not self._keys:
            raise IndexError("no job waits")
        return min(self._keys, key=self._keys.__getitem__)

    def pop(self) -> Any:
        job = self.peek()
        del self._keys[job]
        return job

    def discard(self, job: Hashable) -> bool:
        return self._keys.pop(job, None) is not None

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, job: object) -> bool:
        return job in self._keys
