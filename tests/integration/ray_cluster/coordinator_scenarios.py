"""Batches of a coordinator actor in a real Ray on this machine; run in Ray's Python.

It writes FOLDER/results.json:

python coordinator_scenarios.py FOLDER
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray
from coresched_ray.coordinators import (
    connect,
    connect_blocking,
    coordinator,
    start_coordinator,
    stop_coordinator,
)

from coresched import sync

SAMPLES, TURNS, DRIVERS = 500, 2, 4
LIMITS = {"sample_concurrency": 60, "environment_concurrency": 6}
OTHER_LIMITS = {"sample_concurrency": 5, "environment_concurrency": 2}
FOLDER = Path(sys.argv[1])


@ray.remote(num_cpus=0)
class Driver:
    """Takes samples of a batch as they are admitted, each in a task of its own; writes down what it did."""

    async def drive(self, name: str, samples: list[str], stage_s: float, log: str, **options: Any) -> None:
        with open(log, "a", buffering=1) as lines:

            async def run(sample: Any) -> None:
                async with sample:
                    for turn in range(TURNS):
                        async with sample.inference():
                            await asyncio.sleep(stage_s)
                        async with sample.environment():
                            began = time.monotonic()
                            await asyncio.sleep(stage_s)
                            lines.write(json.dumps([sample.id, turn, began, time.monotonic()]) + "\n")

            async with connect(name, **options) as batch:
                await batch.submit(samples)
                async with asyncio.TaskGroup() as tasks:
                    async for sample in batch.admissions():
                        tasks.create_task(run(sample))

    def process(self) -> int:
        return os.getpid()


def refusal(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def kill(name: str, how: str) -> None:
    actor = ray.get_actor(name)
    if how == "ray.kill":
        ray.kill(actor, no_restart=False)
    else:
        os.kill(ray.get(actor.process.remote()), signal.SIGKILL)


def killed_often() -> dict[str, Any]:
    """500 samples by four actors, and beside them a batch of this process's threads, under seven kills."""
    start_coordinator("main", journal=FOLDER / "main.sqlite3", workers=["w0", "w1"])
    samples = [f"s{number}" for number in range(SAMPLES)]
    log = FOLDER / "stages.jsonl"
    watching = connect_blocking("main", batch="ckpt-7", keep_open=True, **LIMITS)
    other_samples = [f"o{number}" for number in range(60)]
    lock, other_stages, other_most, other_now = threading.Lock(), 0, 0, 0

    def run_other(batch: Any, name: str) -> None:
        nonlocal other_stages, other_most, other_now
        with batch.sample(name) as sample:
            with sample.inference():
                time.sleep(0.02)
            with sample.environment():
                with lock:
                    other_stages, other_now = other_stages + 1, other_now + 1
                    other_most = max(other_most, other_now)
                time.sleep(0.1)
                with lock:
                    other_now -= 1

    with watching as seen, ThreadPoolExecutor(8) as pool:
        drivers = [Driver.remote() for _ in range(DRIVERS)]
        runs = [
            driver.drive.remote("main", samples, 0.03, str(log), batch="ckpt-7", **LIMITS)
            for driver in drivers
        ]
        kills, lives = [], set()
        with connect_blocking("main", batch="other", **OTHER_LIMITS) as other:
            others = [pool.submit(run_other, other, name) for name in other_samples]
            for number, how in enumerate(("ray.kill", "SIGKILL") * 3 + ("ray.kill",)):
                while seen.refresh().totals.finished < 20 + 60 * number:
                    time.sleep(0.05)
                lives.add(ray.get(ray.get_actor("main").process.remote()))
                kills.append([how, seen.report().totals.finished])
                kill("main", how)
            for one in others:
                one.result()
        ray.get(runs)
        wrong = refusal(
            connect_blocking("main", batch="ckpt-7", **{**LIMITS, "sample_concurrency": 61}).__enter__
        )
        report = seen.refresh()
    totals = report.totals
    return {
        "kills": kills,
        "lives": len(lives),
        "totals": {name: getattr(totals, name) for name in type(totals).__annotations__},
        "states": sorted({times.state for times in report.samples.values()}),
        "samples": sorted(report.samples) == sorted(samples),
        "stages": [json.loads(line) for line in log.read_text().splitlines()],
        "other": [other.report().totals.finished, other_stages, other_most],
        "wrong limits": wrong,
        "wrong terms": refusal(
            lambda: start_coordinator("main", journal=FOLDER / "main.sqlite3", workers=["w0"])
        ),
        "found": refusal(
            lambda: start_coordinator("main", journal=FOLDER / "main.sqlite3", workers=["w0", "w1"])
        ),
    }


def driver_killed() -> dict[str, Any]:
    """What one driver held goes to the other."""
    limits = {"sample_concurrency": 8, "environment_concurrency": 4}
    options: dict[str, Any] = {"batch": "drivers", "grace_s": 2.0, **limits}
    samples = [f"d{number}" for number in range(60)]
    first, second = Driver.remote(), Driver.remote()
    runs = [
        driver.drive.remote("main", samples, 0.15, str(FOLDER / f"driver-{number}.jsonl"), **options)
        for number, driver in enumerate((first, second))
    ]
    with connect_blocking("main", **options) as batch:
        while batch.refresh().totals.finished < 8:
            time.sleep(0.05)
        os.kill(ray.get(first.process.remote(), timeout=5), signal.SIGKILL)
        ray.get(runs[1])
        totals = batch.refresh().totals
    return {
        "totals": {name: getattr(totals, name) for name in type(totals).__annotations__},
        "first": refusal(lambda: ray.get(runs[0])).partition(":")[0],
    }


def started_anew() -> dict[str, Any]:
    """Stopped for good, and another of that name started with its journal, under a client that goes on."""
    start_coordinator("moved", journal=FOLDER / "moved.sqlite3", workers=["w0"])
    with connect_blocking("moved", batch="b", sample_concurrency=1) as batch:
        with batch.sample("before"):
            stop_coordinator("moved")
            absent = refusal(lambda: connect("moved", batch="b", sample_concurrency=1))
            start_coordinator("moved", journal=FOLDER / "moved.sqlite3", workers=["w0"])
        with batch.sample("after") as sample, sample.inference() as turn:
            worker = turn.worker
    totals = batch.report().totals
    return {"absent": absent, "finished": totals.finished, "worker": worker}


def mistakes() -> dict[str, Any]:
    start_coordinator("elsewhere", journal=None, namespace="training")
    start_coordinator("holder", journal=FOLDER / "held.sqlite3")
    foreign = Driver.options(name="foreign").remote()
    process = ray.get(foreign.process.remote())
    given: dict[str, Any] = {"batch": "b", "sample_concurrency": 1}
    there: dict[str, Any] = {**given, "namespace": "training"}
    return {
        "absent": refusal(lambda: connect("nobody", **given)),
        "other namespace": refusal(lambda: connect("elsewhere", **given)),
        "its namespace": refusal(lambda: connect("elsewhere", **there)),
        "bad option": refusal(
            lambda: connect("elsewhere", namespace="training", batch="b", sample_concurrency=0)
        ),
        "workers": refusal(lambda: connect("elsewhere", workers=["w"], **there)),
        "journal": refusal(lambda: start_coordinator("bad", journal="/nowhere/at-all/journal")),
        "journal's type": refusal(lambda: start_coordinator("bad", journal=3)),  # type: ignore[arg-type]
        "load bound": refusal(lambda: start_coordinator("bad", journal=None, load_bound=0.5)),
        "stop": refusal(lambda: stop_coordinator("nobody")),
        "held": refusal(lambda: start_coordinator("bad", journal=FOLDER / "held.sqlite3")),
        "start another's": refusal(lambda: start_coordinator("foreign", journal=None)),
        "connect to another's": refusal(lambda: connect("foreign", **given)),
        "stop another's": refusal(lambda: stop_coordinator("foreign")),
        "another's lives": ray.get(foreign.process.remote()) == process,
    }


def in_the_clear() -> dict[str, Any]:
    """Who reaches the port without what Ray hands out."""

    place = ray.get(ray.get_actor("main").place.remote())
    asked = {"batch": "spy", "sample_concurrency": 1, "grace_s": 1.0}
    certificate = FOLDER / "certificate.pem"
    certificate.write_bytes(place.certificate)
    trusting = {"ca": certificate, **asked}
    results = {
        "no TLS": refusal(sync.connect(place.target, **asked).__enter__),
        "no token": refusal(sync.connect(place.target, **trusting).__enter__),
        "wrong token": refusal(sync.connect(place.target, token="x" * 64, **trusting).__enter__),
    }
    with sync.connect(place.target, token=place.token, **trusting):
        results["all of it"] = "none"
    return results


def after_shutdown() -> dict[str, Any]:
    """Ray would join a cluster, or start one, for the first who asks it for an actor."""
    found = coordinator("main")
    ray.shutdown()
    return {
        "find": refusal(lambda: found.find(1.0)),
        "connect": refusal(lambda: connect("main", batch="b", sample_concurrency=1)),
        "stop": refusal(lambda: stop_coordinator("main")),
        "connected": ray.is_initialized(),
    }


def main() -> None:
    results: dict[str, Any] = {"before Ray": refusal(lambda: start_coordinator("main", journal=None))}
    ray.init(address="local", num_cpus=4, include_dashboard=False, namespace="scenarios", log_to_driver=False)
    for scenario in (mistakes, killed_often, driver_killed, started_anew, in_the_clear, after_shutdown):
        began = time.monotonic()
        results[scenario.__name__] = scenario()
        print(f"{scenario.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    (FOLDER / "results.json").write_text(json.dumps(results))  # Ray prints what it likes


if __name__ == "__main__":
    main()
