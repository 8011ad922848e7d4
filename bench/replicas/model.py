"""A batch behind several replicas of a router, in virtual time: the routers are the real ones."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Literal

from mmh3 import hash64

from coresched.core.routers import LabelRouter, RouterName, make_router

Front = Literal["round-robin", "by-label"]

LOAD_BOUND = 1.25
ALPHA = Fraction(repr(LOAD_BOUND))
TURNS = 20
SAMPLES_PER_SLOT = 4
"""Samples of a batch for each that is admitted at a time."""
THINK_S = 1.0
REPLY_S = 1.0
LOST_PREFIX_S = 0.5
"""What a turn takes longer where the one before it was not: its prefix is computed anew."""
FULL_SPEED = 8
"""Requests of a worker that do not slow each other; more share what these have."""


@dataclass(frozen=True, slots=True)
class Setting:
    """``replicas`` of a router before ``workers``, which ``concurrency`` samples for each worker use."""

    workers: int
    concurrency: int
    replicas: int = 1
    front: Front = "round-robin"
    slack: int = 0
    router: RouterName = "lbch"
    hot: float = 0.0
    """Share of the samples that have one label in common, and so one home."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to. Shares are of turns, between 0 and 1."""

    makespan_s: float
    affinity: float
    """Turns after a sample's first that were served where the one before was."""
    false_spills: float
    """Turns that left a label's home though the true counts were within the bound (slack 0) there."""
    missed_spills: float
    """Turns that stayed at home though the true counts were beyond it."""
    peak: float
    """The most loaded worker's requests in flight over the mean of all, averaged over turns."""
    in_flight: float
    """Requests in flight on a worker, averaged over turns."""


@dataclass(slots=True)
class _Sample:
    label: str
    turns: int
    entry: int
    worker: int = -1


class _Worker:
    """Shares its speed among the requests in flight: each has min(1, FULL_SPEED / n) seconds a second."""

    def __init__(self) -> None:
        self.flights: list[tuple[float, int, _Sample, int]] = []  # (progress at the end, order, ...)
        self._progress = 0.0
        self._at = 0.0

    def _speed(self) -> float:
        return min(1.0, FULL_SPEED / len(self.flights)) if self.flights else 1.0

    def advance(self, now: float) -> None:
        self._progress += (now - self._at) * self._speed()
        self._at = now

    def begin(self, now: float, work_s: float, order: int, sample: _Sample, replica: int) -> None:
        self.advance(now)
        heapq.heappush(self.flights, (self._progress + work_s, order, sample, replica))

    def next_end(self) -> float:
        if not self.flights:
            return float("inf")
        return self._at + max(0.0, self.flights[0][0] - self._progress) / self._speed()

    def end(self, now: float) -> tuple[_Sample, int]:
        self.advance(now)
        _, _, sample, replica = heapq.heappop(self.flights)
        return sample, replica


class _Run:
    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.seed = seed
        self.names = [f"w{i}" for i in range(setting.workers)]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.replicas: list[LabelRouter] = [
            make_router(setting.router, self.names, LOAD_BOUND, slack=setting.slack)
            for _ in range(setting.replicas)
        ]
        self.workers = [_Worker() for _ in self.names]
        self.thinking: list[tuple[float, int, _Sample]] = []
        self.order = 0
        self.entered = 0
        self.routed = self.followed = self.kept = self.false = self.missed = 0
        self.peaks = self.loads = 0.0

    def run(self) -> Outcome:
        slots = self.setting.workers * self.setting.concurrency
        total = slots * SAMPLES_PER_SLOT
        for _ in range(slots):
            self.enter(0.0)
        now = 0.0
        while True:
            at, worker = min((each.next_end(), i) for i, each in enumerate(self.workers))
            if self.thinking and self.thinking[0][0] <= at:
                now, _, sample = heapq.heappop(self.thinking)
                self.turn(now, sample)
            elif at == float("inf"):
                break
            else:
                now = at
                self.ended(now, worker, total)
        return Outcome(
            now,
            self.kept / self.followed,
            self.false / self.routed,
            self.missed / self.routed,
            self.peaks / self.routed,
            self.loads / self.routed,
        )

    def enter(self, now: float) -> None:
        entry = self.entered
        self.entered += 1
        # A sample's own lengths, whoever routes it and whenever it comes.
        own = Random(f"sample {self.seed} {entry}")
        label = "hot" if own.random() < self.setting.hot else f"traj-{self.seed}-{entry}"
        self.think(now, _Sample(label, own.randint(TURNS // 2, TURNS + TURNS // 2), entry))

    def think(self, now: float, sample: _Sample) -> None:
        self.order += 1
        gap = Random(f"gap {self.seed} {sample.entry} {sample.turns}").expovariate(1 / THINK_S)
        heapq.heappush(self.thinking, (now + gap, self.order, sample))

    def replica_of(self, label: str) -> int:
        count = self.setting.replicas
        if self.setting.front == "by-label":
            return int(hash64(label, 7)[0]) % count
        return self.routed % count

    def turn(self, now: float, sample: _Sample) -> None:
        replica = self.replica_of(sample.label)
        router = self.replicas[replica]
        home = router.home(sample.label)
        chosen = router.route(sample.label)
        worker = self.index[chosen]
        loads = [len(each.flights) for each in self.workers]
        mean = (sum(loads) + 1) / len(loads)
        if home is not None:
            within = loads[self.index[home]] <= ALPHA * (sum(loads) + 1) / len(loads)
            self.false += within and chosen != home
            self.missed += not within and chosen == home
        loads[worker] += 1
        self.peaks += max(loads) / mean
        self.loads += mean
        self.routed += 1
        lost = sample.worker != worker
        if sample.worker >= 0:
            self.followed += 1
            self.kept += not lost
        reply = Random(f"reply {self.seed} {sample.entry} {sample.turns}").expovariate(1 / REPLY_S)
        self.order += 1
        self.workers[worker].begin(now, reply + LOST_PREFIX_S * lost, self.order, sample, replica)
        sample.worker = worker

    def ended(self, now: float, worker: int, total: int) -> None:
        sample, replica = self.workers[worker].end(now)
        self.replicas[replica].release(self.names[worker])
        sample.turns -= 1
        if sample.turns > 0:
            self.think(now, sample)
            return
        if sample.label != "hot":
            for router in self.replicas:
                router.forget(sample.label)
        if self.entered < total:
            self.enter(now)


def simulate(setting: Setting, seed: int) -> Outcome:
    """One batch; the same samples, replies and gaps for each setting of a seed, workers and concurrency."""
    return _Run(setting, seed).run()
