"""The published experiments as runs of the simulator: each number, and the settings that should give it.

One worker model stands for the deployment of all of them. The batches have the published totals; those of SWE
and WideSearch have responses scaled so that the mean prompt of a request is near the published one too.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from bench.paper.atlas import atlas
from bench.paper.figure3 import WORKLOADS, published_grid
from bench.paper.workloads import Spread, workload
from coresched.lab.simulator.settings import CacheAwareRouting, RunSettings
from coresched.trajectory.schema import Environment, Trajectory

WORKER_MODEL: Final = "h20-tp4-hybrid"
RESPONSE_FACTORS: Final = {"SWE": 0.93, "WideSearch": 0.8, "BFCL": 1.0}
"""The mean prompt of a request is then 50k, 47k and 6k tokens (published: 48k, 45k and 7k)."""

FIGURE3_LIMIT_MIN: Final = 360.0
FIGURE6_LIMIT_MIN: Final = 780.0
DEFAULT_RATIO: Final = 0.9
UNIFIED, DECOUPLED = "unified", 50

LIVE_STAGE_S: Final = Spread(2.6, 1.5)
"""Of the live SWE runs, whose tools the replayed batch leaves out. The mean is published, the spread ours."""
LIVE_CACHE_AWARE: Final = CacheAwareRouting(balance_abs_threshold=0, balance_rel_threshold=5 / 3)


@dataclass(frozen=True)
class Cell:
    """One published run; ``published_min`` is None if it was stopped at ``limit_min``, or is not printed."""

    experiment: str
    workload: str
    row: str
    column: str
    settings: RunSettings
    published_min: float | None
    limit_min: float | None = None

    @property
    def stopped(self) -> bool:
        """Whether the published run did not end within its limit."""
        return self.limit_min is not None and self.published_min is None


@cache
def published() -> dict[str, Any]:
    """Numbers of the paper that are no grid of Figure 3, by figure and table."""
    found: dict[str, Any] = json.loads((resources.files(__package__) / "published.json").read_text())
    return found


@cache
def batch(name: str, seed: int) -> list[Trajectory]:
    """The trajectories of a workload; another seed is another batch."""
    if name == "MCP-Atlas":
        return atlas(seed)
    base, live, _ = name.partition(" live")
    made = workload(base, seed, RESPONSE_FACTORS[base])
    return _with_stages(made, Random(f"live/{seed}")) if live and base == "SWE" else made


def _with_stages(trajectories: list[Trajectory], rng: Random) -> list[Trajectory]:
    def stage(env: Environment | None) -> Environment | None:
        if env is None:
            return None
        return Environment(
            duration_s=LIVE_STAGE_S.draw(rng),
            response_tokens=env.response_tokens,
            duration_quality="estimated",
        )

    return [
        replace(one, turns=tuple(replace(t, env=stage(t.env)) for t in one.turns)) for one in trajectories
    ]


def figure3() -> Iterator[Cell]:
    """The grid of ratios and concurrencies on one worker, first come first served."""
    for name in WORKLOADS:
        for cell in published_grid(name):
            settings = _settings(name, workers=1, concurrency=cell.concurrency, ratio=cell.ratio)
            row, column = f"r {cell.ratio:g}", f"{cell.concurrency}"
            yield Cell("Figure 3", name, row, column, settings, cell.makespan_min, FIGURE3_LIMIT_MIN)


def figure6() -> Iterator[Cell]:
    """Four orders inside one worker, from half the reference concurrency to well above it; also Table 1."""
    for name, found in published()["figure6"].items():
        for policy, makespans in found["makespans_by_policy"].items():
            for concurrency, makespan in zip(found["concurrencies"], makespans, strict=True):
                settings = _settings(
                    name, workers=1, concurrency=concurrency, ratio=found["ratio"], worker_policy=policy
                )
                yield Cell("Figure 6", name, policy, f"{concurrency}", settings, makespan, FIGURE6_LIMIT_MIN)


def figure8() -> Iterator[Cell]:
    """Three routers in front of two workers with routing-prefix. Figures 9 and 10 are of these."""
    for name, found in published()["figure8"].items():
        for router, makespan in found["makespans_by_router"].items():
            settings = _settings(
                name,
                workers=2,
                concurrency=found["concurrency"],
                ratio=found["ratio"],
                worker_policy="routing-prefix",
                routing=router,
            )
            yield Cell("Figure 8", name, router, "makespan", settings, makespan)


def figure11() -> Iterator[Cell]:
    """MCP-Atlas: samples admitted apart from environment slots; Figure 12 is the last of each row."""
    found = published()["figure11"]["makespans_by_environment_concurrency"]
    for limit, makespans in found.items():
        for admitted, makespan in makespans.items():
            concurrency = int(limit) if admitted == UNIFIED else int(admitted)
            policies = ("fcfs", "caas") if concurrency == DECOUPLED else ("fcfs",)
            for policy in policies:
                settings = _settings(
                    "MCP-Atlas",
                    workers=2,
                    concurrency=concurrency,
                    ratio=0.14,
                    worker_policy="routing-prefix",
                    routing="lbch",
                    environment_concurrency=int(limit),
                    environment_policy=policy,
                )
                column = admitted if policy == "fcfs" else f"{admitted} caas"
                printed = makespan if policy == "fcfs" else None
                yield Cell("Figure 11", "MCP-Atlas", f"C_E {limit}", column, settings, printed)


LIVE: Final = {
    "SWE": {"baseline 1": (100, 0.9), "baseline 2": (250, 0.9), "coordinated": (250, 0.1)},
    "WideSearch": {"baseline": (40, 0.9), "coordinated": (100, 0.25)},
    "BFCL": {"baseline": (100, 0.9), "coordinated": (300, 1.5)},
}
"""C_S and r of the live runs of Table 2 on Ling-3.0-Flash (Table A2)."""


def table2() -> Iterator[Cell]:
    """The live runs on two workers: with one, the reuse that is printed is out of reach."""
    for name, runs in LIVE.items():
        makespans = published()["table2"][name]["makespans"]
        for run, (concurrency, ratio) in runs.items():
            ours = run == "coordinated"
            settings = _settings(
                name,
                workers=2,
                concurrency=concurrency,
                ratio=ratio,
                worker_policy="routing-prefix" if ours else "fcfs",
                routing="lbch" if ours else "cache-aware",
                cache_aware=LIVE_CACHE_AWARE,
            )
            yield Cell("Table 2", f"{name} live", run, "makespan", settings, makespans[run])


EXPERIMENTS: Final = {
    "figure3": figure3,
    "figure6": figure6,
    "figure8": figure8,
    "figure11": figure11,
    "table2": table2,
}


def _settings(name: str, *, concurrency: int, ratio: float, **more: Any) -> RunSettings:
    capacity = published()["reference_concurrency"].get(name, concurrency)
    return RunSettings(
        **{
            "name": "cell",
            "sample_concurrency": concurrency,
            "environment_concurrency": None,
            "state_ratio": ratio,
            "label_capacity": capacity,
            "routing": "cache-aware",
            **more,
        }
    )
