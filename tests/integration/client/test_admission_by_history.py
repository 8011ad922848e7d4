"""The longest expected samples are admitted first: embedded, at a service, and by environment variables."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batches import Batches
from served import served

import coresched
from coresched.batch.history import write_history
from coresched.client.gate.process import VARIABLES

LENGTHS = {"first": 1.0, "short": 2.0, "long": 30.0, "middle": 7.0}
OPTIONS: dict[str, Any] = {"sample_concurrency": 1, "admission_policy": "longest-expected-first"}
BY_LENGTH = ["first", "long#2", "middle", "unknown", "short"]
"""The first is entered while the slot is free; the unknown one counts as the median, like the middle one."""

HARNESS = """
import json, sys, threading, time
from coresched.client.gate import process_gate

gate, seen = process_gate(), []

def run(name):
    with gate.sample(name):
        seen.append(name)

with gate.sample("first"):
    threads = [threading.Thread(target=run, args=[name]) for name in ("middle", "short", "unknown", "long#2")]
    for waiting, thread in enumerate(threads, 1):
        thread.start()
        while gate.report().totals.waiting < waiting:
            time.sleep(0.01)
for thread in threads:
    thread.join()
print(json.dumps(["first", *seen]))
"""


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "history.jsonl"
    write_history(path, LENGTHS, "seconds", "history")
    return path


@pytest.mark.parametrize("given", [lambda path: path, lambda path: LENGTHS], ids=["file", "mapping"])
async def test_what_was_submitted_is_admitted_by_length(
    batches: Batches, history: Path, given: Callable[[Path], Any]
) -> None:
    seen = []
    async with batches.make(history=given(history), **OPTIONS) as batch:
        await batch.submit(["first", "short", "long#2", "unknown"])
        async for sample in batch.admissions():
            async with sample:
                seen.append(sample.id)
    assert seen == ["long#2", "short", "unknown", "first"]


async def test_who_waits_is_admitted_by_length(batches: Batches, history: Path) -> None:
    seen = []

    async def run(batch: Any, name: str) -> None:
        async with batch.sample(name):
            seen.append(name)

    async with batches.make(history=history, **OPTIONS) as batch:
        async with batch.sample("first"):
            seen.append("first")
            tasks = []
            for waiting, name in enumerate(("middle", "short", "unknown", "long#2"), 1):
                tasks.append(asyncio.create_task(run(batch, name)))
                while (await batch.refresh()).totals.waiting < waiting:
                    await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
    assert seen == BY_LENGTH


def test_threads_that_wait_are_admitted_by_length(batches: Batches, history: Path) -> None:
    seen = []

    def run(batch: Any, name: str) -> None:
        with batch.sample(name):
            seen.append(name)

    with batches.make_blocking(history=history, **OPTIONS) as batch:
        with batch.sample("first"):
            seen.append("first")
            threads = [
                threading.Thread(target=run, args=[batch, name])
                for name in ("middle", "short", "unknown", "long#2")
            ]
            for waiting, thread in enumerate(threads, 1):
                thread.start()
                while batch.refresh().totals.waiting < waiting:
                    threading.Event().wait(0.01)
        for thread in threads:
            thread.join()
    assert seen == BY_LENGTH


def harness(**variables: str) -> list[str]:
    """What a harness in a process of its own has admitted."""
    plain = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    given = {f"CORESCHED_{name}": value for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "-c", HARNESS],
        env=plain | given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "knows nothing of sample 'unknown'" in done.stderr
    return list(json.loads(done.stdout))


def test_a_harness_with_the_variables_set_is_admitted_by_length(history: Path) -> None:
    seen = harness(
        SAMPLE_CONCURRENCY="1",
        ADMISSION_POLICY="longest-expected-first",
        HISTORY=str(history),
    )
    assert seen == BY_LENGTH


async def test_an_order_outlives_the_service(tmp_path: Path, history: Path) -> None:
    flags = ("--journal", str(tmp_path / "journal"))
    options = {"batch": "b", "history": history, **OPTIONS}
    with served(*flags) as (address, _):
        async with coresched.connect(address, keep_open=True, **options) as batch:
            await batch.submit(["short", "long#2", "unknown", "middle"])
    with served(*flags) as (address, _):
        async with coresched.connect(address, **options) as batch:
            seen = []
            async for sample in batch.admissions():
                async with sample:
                    seen.append(sample.id)
    assert seen == ["long#2", "unknown", "middle", "short"]
