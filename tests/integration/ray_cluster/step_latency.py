"""What a step of a batch takes through the coordinator, beside a call of a plain Ray actor's method.

By hand, in Ray's Python; it prints JSON. A step is the beginning or the end of a turn.

    python step_latency.py JOURNAL
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from typing import Any

import ray
from coresched_ray.coordinators import connect, connect_blocking, start_coordinator

from coresched.core import LoadBoundedRouter

TURNS, ROUNDS, SAMPLES = 400, 5, 64
WORKERS = ["w0", "w1"]


@ray.remote(num_cpus=0)
class Plain:
    """The router alone: no batch, journal, sessions or request ids."""

    def __init__(self) -> None:
        self._router = LoadBoundedRouter(WORKERS)

    def begin(self, label: str) -> str:
        return self._router.route(label)

    def end(self, worker: str) -> None:
        self._router.release(worker)


def microseconds(steps_s: list[float]) -> list[int]:
    """Median, 5th and 95th percentile."""
    parts = statistics.quantiles(steps_s, n=20)
    return [round(1e6 * value) for value in (statistics.median(steps_s), parts[0], parts[-1])]


def one_plain(actor: Any) -> list[float]:
    steps_s = []
    for number in range(TURNS):
        began = time.perf_counter()
        ray.get(actor.end.remote(ray.get(actor.begin.remote(f"k{number}"))))
        steps_s.append((time.perf_counter() - began) / 2)
    return steps_s


def one_at(name: str, batch: str) -> list[float]:
    steps_s = []
    with connect_blocking(name, batch=batch, sample_concurrency=1) as joined, joined.sample("s") as sample:
        for _ in range(TURNS):
            began = time.perf_counter()
            with sample.inference():
                pass
            steps_s.append((time.perf_counter() - began) / 2)
    return steps_s


def main() -> None:
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    plain = Plain.remote()
    start_coordinator("journal", journal=sys.argv[1], workers=WORKERS)
    start_coordinator("none", journal=None, workers=WORKERS)

    async def sample_at(batch: Any, number: int) -> None:
        async with batch.sample(f"s{number}") as sample:
            for _ in range(20):
                async with sample.inference():
                    pass

    async def many_at(name: str, called: str) -> float:
        async with connect(name, batch=called, sample_concurrency=SAMPLES) as batch:
            began = time.perf_counter()
            await asyncio.gather(*(sample_at(batch, number) for number in range(SAMPLES)))
            return SAMPLES * 40 / (time.perf_counter() - began)

    async def sample_plain(number: int) -> None:
        for _ in range(20):
            await plain.end.remote(await plain.begin.remote(f"k{number}"))

    async def many_plain() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(sample_plain(number) for number in range(SAMPLES)))
        return SAMPLES * 40 / (time.perf_counter() - began)

    rows: dict[str, list[Any]] = {}
    ray.get(plain.begin.remote("warm"))
    for number in range(ROUNDS):
        rows.setdefault("plain, us", []).append(microseconds(one_plain(plain)))
        rows.setdefault("plain, 64 at once, steps/s", []).append(round(asyncio.run(many_plain())))
        for name in ("journal", "none"):
            rows.setdefault(f"{name}, us", []).append(microseconds(one_at(name, f"one-{number}")))
            many = asyncio.run(many_at(name, f"many-{number}"))
            rows.setdefault(f"{name}, 64 at once, steps/s", []).append(round(many))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
