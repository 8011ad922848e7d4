"""The parts of what may be better than the paper's method, and settings with any of them."""

from collections.abc import Set
from dataclasses import replace
from functools import cache
from math import ceil
from typing import Final

from bench.rivals.cases import EXPECTATION_NOISE, Case, Source, trajectories
from coresched.capacity.profile import profile_of
from coresched.lab.plans import Point, by_requests
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.settings import RunSettings

PARTS: Final = {
    "residency": "cached trajectories first, by what the cache holds and not by labels (routing-residency)",
    "guard": "and nobody who is not cached if that would evict a trajectory that comes back",
    "release": "a worker drops what it holds of a sample that has finished (no engine can be told yet)",
    "pools": "r and C by the mean context of requests, not of whole trajectories; C_S no more than W C",
    "routing": "first turn to the least loaded, then there within the bound (sticky-bounded)",
    "admission": f"the longest first, by a history off by a lognormal factor of sigma {EXPECTATION_NOISE:g}",
}
"""By name; the guard needs residency."""
ALL: Final = frozenset(PARTS)
PLANNED_ON: Final = 0
"""Seed of the batch that pools are planned on, which is none of those that are run."""

LABELS: Final = "C_A x 1.25"
"""Not a part, as residency has no C_A: what a larger one brings to the paper's method."""


def with_parts(case: Case, parts: Set[str]) -> RunSettings:
    """The paper's method with these parts in place of its own."""
    settings = case.settings
    if "residency" in parts:
        policy = "routing-residency" if "guard" in parts else "routing-residency-unguarded"
        settings = replace(settings, worker_policy=policy)
    if "release" in parts:
        settings = replace(settings, release_finished=True)
    if "pools" in parts:
        point = _planned(case.source, case.model)
        settings = replace(
            settings,
            state_ratio=point.ratio,
            sample_concurrency=min(settings.sample_concurrency, settings.workers * point.concurrency),
            label_capacity=point.concurrency,
        )
    if "routing" in parts:
        settings = replace(settings, routing="sticky-bounded")
    if "admission" in parts:
        settings = replace(settings, admission_policy="longest-expected-first")
    return settings


def with_labels(case: Case) -> RunSettings:
    """The paper's method with LABELS."""
    return replace(case.settings, label_capacity=ceil(1.25 * case.settings.label_capacity))


def changing(case: Case) -> frozenset[str]:
    """The parts that can change something in a case: with one worker, routing cannot."""
    return ALL if case.settings.workers > 1 else ALL - {"routing"}


@cache
def _planned(source: Source, model: WorkerModel) -> Point:
    return by_requests(profile_of(trajectories(source, PLANNED_ON)), model)
