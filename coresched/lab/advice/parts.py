"""What of a configuration may be chosen, part by part, and the values that are tried."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from math import ceil
from typing import Any, Final

from coresched.capacity.profile import WorkloadProfile
from coresched.errors import InputError
from coresched.lab.plans import Point, at_ratio, by_kappa, by_paper, by_peak, by_requests
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.settings import (
    LOAD_BOUNDED,
    ONLY_SIMULATED,
    AdmissionPolicy,
    Routing,
    RunSettings,
    WorkerPolicy,
)

PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "admission": ("sample_concurrency", "admission_policy"),
    "pools": ("state_ratio",),
    "routing": ("routing", "load_bound"),
    "order": ("worker_policy", "label_capacity"),
    "environment": ("environment_policy", "band_s", "bucket_s"),
}
"""Each part of a configuration, and the settings that are chosen together for it."""

CONCURRENCY_FACTORS: Final = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Of as many samples as fit into the workers' memory, or as there are."""
ADMISSION_POLICIES: Final[tuple[AdmissionPolicy, ...]] = ("submission", "longest-expected-first")
RATIO_FACTORS: Final = (0.75, 1.0, 1.5)
UNBOUNDED_ROUTERS: Final[tuple[Routing, ...]] = (
    "cache-aware",
    "consistent-hash",
    "power-of-two",
    "sticky-least-loaded",
)
"""Of the routers without a load bound, those that `recipe` knows how to start."""
LOAD_BOUNDS: Final = (1.1, 1.25, 1.5)
STICKY_BOUND: Final = 1.25
"""One is enough: with another, the makespan differs by no more than another order of the batch makes."""
ORDERS: Final[tuple[WorkerPolicy, ...]] = ("fcfs", "lpm", "dfs-weight", "routing-residency")
"""Of the worker policies without a label capacity, those that `recipe` knows how to start."""
LABEL_FACTORS: Final = (1.0, 1.25, 1.5)
BANDS_S: Final = (10.0, 30.0, 120.0)
PRESSURES: Final = (1.0, 1.5, 2.0)
"""Of as many samples as an estimate says fit, how many are admitted where all is chosen at once."""
NEARBY: Final = (0.85, 1.0, 1.18)
"""Of r and of C_S, which are tried together: a worker that holds more at another r is to get more."""


@dataclass(frozen=True)
class Capacity:
    """How many trajectories a worker holds, with its memory split as the engine does and as planned."""

    default_ratio: float
    default_concurrency: int
    planned_ratio: float
    planned_concurrency: int
    points: tuple[Point, ...] = ()
    """r and C of a worker by each estimator that has it hold a trajectory at all."""

    @classmethod
    def of(cls, profile: WorkloadProfile, model: WorkerModel) -> "Capacity":
        """Raises InputError when not even one trajectory fits."""
        paper = by_paper(profile, model)
        planned = by_peak(profile, model, paper.concurrency)
        default = at_ratio(profile, model, model.default_state_ratio, paper.concurrency)
        estimates = (default, planned, paper, by_requests(profile, model), by_kappa(profile, model))
        points = tuple(dict.fromkeys(point for point in estimates if point.concurrency >= 1))
        return cls(default.ratio, default.concurrency, planned.ratio, planned.concurrency, points)


def part_of(settings: RunSettings, part: str) -> dict[str, Any]:
    """The settings of one part; what does not matter for it is left out."""
    values = {name: getattr(settings, name) for name in PARTS[part]}
    if settings.routing not in LOAD_BOUNDED:
        values.pop("load_bound", None)
    if settings.worker_policy != "routing-prefix":
        values.pop("label_capacity", None)
    if settings.environment_policy != "caas":
        values.pop("band_s", None)
        values.pop("bucket_s", None)
    return values


def with_part(settings: RunSettings, part: str, of: RunSettings) -> RunSettings:
    """``settings`` with one part of another configuration."""
    return replace(settings, **{name: getattr(of, name) for name in PARTS[part]})


def alternatives(
    settings: RunSettings, part: str, capacity: Capacity, samples: int, *, by_history: bool = False
) -> Iterator[RunSettings]:
    """What may stand in ``settings`` for one part of it. A part that cannot matter has none.

    ``by_history``: there is one to admit by.
    """
    workers = settings.workers
    if part == "admission":
        held = [
            min(workers * count, samples)
            for count in (capacity.default_concurrency, capacity.planned_concurrency)
        ]
        tried = {min(max(1, round(f * count)), samples) for f in CONCURRENCY_FACTORS for count in held}
        for policy in ADMISSION_POLICIES if by_history else (settings.admission_policy,):
            for count in sorted(tried | {samples}):
                yield replace(settings, sample_concurrency=count, admission_policy=policy)
    elif part == "pools":
        ratios = {capacity.default_ratio, *(f * capacity.planned_ratio for f in RATIO_FACTORS)}
        yield from (replace(settings, state_ratio=ratio) for ratio in sorted(ratios))
    elif part == "routing":
        if workers == 1:
            return
        yield from (replace(settings, routing=name) for name in UNBOUNDED_ROUTERS)
        yield from (replace(settings, routing="lbch", load_bound=bound) for bound in LOAD_BOUNDS)
        yield replace(settings, routing="sticky-bounded", load_bound=STICKY_BOUND)
    elif part == "order":
        yield from (replace(settings, worker_policy=name) for name in ORDERS)
        for factor in LABEL_FACTORS:
            labels = ceil(factor * capacity.planned_concurrency)
            yield replace(settings, worker_policy="routing-prefix", label_capacity=labels)
    else:
        if settings.environment_concurrency is None:
            return
        yield replace(settings, environment_policy="fcfs")
        yield from (replace(settings, environment_policy="caas", band_s=band) for band in BANDS_S)


def together(
    settings: RunSettings, capacity: Capacity, samples: int, *, by_history: bool = False
) -> Iterator[RunSettings]:
    """Admission, pools and order chosen at once, by each estimate of what a worker holds.

    One at a time they are stuck where two hold each other: at another r alone the old C_S overflows a pool.
    """
    found: dict[RunSettings, None] = {}
    for point, pressure in product(capacity.points, PRESSURES):
        count = min(max(1, round(pressure * settings.workers * point.concurrency)), samples)
        for order, policy in product(
            ("routing-prefix", "routing-residency"),
            ADMISSION_POLICIES if by_history else (settings.admission_policy,),
        ):
            one = replace(
                settings,
                sample_concurrency=count,
                admission_policy=policy,
                state_ratio=point.ratio,
                worker_policy=order,
                label_capacity=point.concurrency if order == "routing-prefix" else settings.label_capacity,
            )
            found[one] = None
    yield from found


def nearby(settings: RunSettings, samples: int) -> Iterator[RunSettings]:
    """A little more and less of r and of C_S, together."""
    for ratio, count in product(NEARBY, NEARBY):
        yield replace(
            settings,
            state_ratio=settings.state_ratio * ratio,
            sample_concurrency=min(max(1, round(settings.sample_concurrency * count)), samples),
        )


def given(settings: RunSettings, texts: Sequence[str]) -> RunSettings:
    """``settings`` with NAME=VALUE for some of what can be chosen. Raises InputError naming what is wrong."""
    chosen = [name for names in PARTS.values() for name in names]
    kinds = {field.name: type(getattr(settings, field.name)) for field in fields(settings)}
    said: dict[str, str] = {}
    for text in texts:
        written, equals, value = text.partition("=")
        name = written.strip().replace("-", "_")
        if not equals or name not in chosen:
            names = ", ".join(one.replace("_", "-") for one in chosen)
            raise InputError(f"--as-it-is {text!r} must be NAME=VALUE with a NAME of {names}")
        if name in said:
            raise InputError(f"--as-it-is {text!r} and {said[name]!r} set the same; give one of them")
        if value.strip() in ONLY_SIMULATED:
            raise InputError(
                f"--as-it-is {text!r}: only a simulated batch has that; give a policy of coresched.Batch"
            )
        said[name] = text
        try:
            settings = replace(settings, **{name: kinds[name](value.strip())})
        except InputError as error:
            raise InputError(f"--as-it-is {text!r}: {error}") from None
        except ValueError:
            kind = "a whole number" if kinds[name] is int else "a number"
            raise InputError(f"--as-it-is {text!r}: {value!r} is not {kind}; give one") from None
    return settings
