"""What a batch records, the same embedded and at a service, for asyncio and threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from batches import Batches

import coresched
from coresched.recording.events import (
    Admission,
    AnyEvent,
    Completion,
    EnvironmentStage,
    FailedInference,
    Inference,
    Withdrawal,
)
from coresched.recording.merge import Recording, read_recording
from coresched.recording.reader import recording_files


def recorded(folder: Path) -> Recording:
    found = read_recording(recording_files(folder))
    assert found.faults == []
    assert found.batch is not None
    assert (found.batch.sample_concurrency, found.batch.environment_concurrency) == (2, 1)
    assert found.batch.environment_policy == "fcfs"
    return found


def kinds(found: Recording, sample: str) -> list[type[AnyEvent]]:
    return [type(event) for event in found.events if event.sample == sample]


ONE_SAMPLE = [Admission, FailedInference, Inference, EnvironmentStage, Inference, Completion]


def check_one_sample(folder: Path) -> None:
    found = recorded(folder)
    assert kinds(found, "a") == ONE_SAMPLE
    first, second = (event for event in found.events if isinstance(event, Inference))
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens) == (100, 40, 7)
    assert (second.turn, second.prompt_tokens) == (1, None)
    assert {first.worker, second.worker} <= {"w0", "w1"}
    (stage,) = (event for event in found.events if isinstance(event, EnvironmentStage))
    assert stage.failed
    assert stage.resumed_s is not None
    assert stage.ended_s <= stage.resumed_s <= second.sent_s
    assert kinds(found, "b") == [Admission, Withdrawal]


OPTIONS: dict[str, Any] = {
    "sample_concurrency": 2,
    "environment_concurrency": 1,
    "environment_policy": "fcfs",
}


async def test_the_steps_of_a_sample(batches: Batches, tmp_path: Path) -> None:
    async with batches.make(**OPTIONS, record=tmp_path) as batch:
        async with batch.sample("a") as sample:
            with suppress(OSError):
                async with sample.inference():
                    raise OSError
            async with sample.inference() as turn:
                turn.usage(prompt_tokens=1, output_tokens=1)
                turn.usage(prompt_tokens=100, cached_tokens=40, output_tokens=7)  # the last one counts
            with suppress(OSError):
                async with sample.environment():
                    raise OSError
            async with sample.inference():
                pass
        with suppress(OSError):
            async with batch.sample("b"):
                raise OSError
    check_one_sample(tmp_path)


def test_the_steps_of_a_sample_in_a_thread(batches: Batches, tmp_path: Path) -> None:
    with batches.make_blocking(**OPTIONS, record=tmp_path) as batch:
        with batch.sample("a") as sample:
            with suppress(OSError), sample.inference():
                raise OSError
            with sample.inference() as turn:
                turn.usage(prompt_tokens=100, cached_tokens=40, output_tokens=7)
            with suppress(OSError), sample.environment():
                raise OSError
            with sample.inference():
                pass
        with suppress(OSError), batch.sample("b"):
            raise OSError
    check_one_sample(tmp_path)


def check_waits(folder: Path) -> None:
    """The last one waited for both others' stages, and its wait is in no stage's time."""
    found = recorded(folder)
    stages = sorted(
        (event for event in found.events if isinstance(event, EnvironmentStage)),
        key=lambda one: one.started_s,
    )
    assert len(stages) == 3
    for before, after in pairwise(stages):
        assert after.started_s >= before.ended_s
    admissions = [event for event in found.events if isinstance(event, Admission)]
    assert all(one.submitted_s is not None and one.submitted_s <= one.at_s for one in admissions)
    assert max(one.at_s - (one.submitted_s or 0.0) for one in admissions) >= 0.05
    assert [sample.state for sample in found.samples] == ["completed"] * 3


async def test_admissions_and_waits(batches: Batches, tmp_path: Path) -> None:
    async def run(sample: Any) -> None:
        async with sample, sample.environment():
            await asyncio.sleep(0.05)

    async with batches.make(**OPTIONS, record=tmp_path) as batch:
        await batch.submit(["a", "b", "c"])
        await asyncio.gather(*[asyncio.create_task(run(sample)) async for sample in batch.admissions()])
    check_waits(tmp_path)


def test_admissions_and_waits_in_threads(batches: Batches, tmp_path: Path) -> None:
    def run(sample: Any) -> None:
        with sample, sample.environment():
            threading.Event().wait(0.05)

    with batches.make_blocking(**OPTIONS, record=tmp_path) as batch, ThreadPoolExecutor() as pool:
        batch.submit(["a", "b", "c"])
        list(pool.map(run, batch.admissions()))
    check_waits(tmp_path)


async def test_a_stage_that_was_given_up_in_the_queue_is_none(batches: Batches, tmp_path: Path) -> None:
    async def wait_for_slot(sample: Any) -> None:
        async with sample.environment():
            raise AssertionError

    async with (
        batches.make(**OPTIONS, record=tmp_path) as batch,
        batch.sample("a") as a,
        batch.sample("b") as b,
        a.environment(),
    ):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait_for_slot(b), 0.05)
    found = recorded(tmp_path)
    assert [event.sample for event in found.events if isinstance(event, EnvironmentStage)] == ["a"]


@pytest.mark.parametrize("blocking", [False, True])
def test_a_folder_that_cannot_be_is_refused_before_anything(
    batches: Batches, tmp_path: Path, blocking: bool
) -> None:
    make: Callable[..., Any] = batches.make_blocking if blocking else batches.make
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^record '.*file' is not a directory; choose another name$"):
        make(**OPTIONS, record=tmp_path / "file")
    with pytest.raises(TypeError, match="record must be the path of a folder, got 3"):
        make(**OPTIONS, record=3)


async def test_what_could_not_be_written_is_an_error_at_the_end_of_the_block(
    batches: Batches, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"

    async def run(error: Exception | None) -> None:
        async with batches.make(**OPTIONS, record=folder) as batch:
            folder.rmdir()
            async with batch.sample("a"):
                if error is not None:
                    raise error

    with pytest.raises(coresched.RecordingError, match="lacks 2 events that could not be written: No such"):
        await run(None)
    with pytest.raises(KeyError):  # which is the harness's own; the other is logged
        await run(KeyError())
    assert [record.levelname for record in caplog.records if record.name == "coresched.recording"] == [
        *("WARNING", "WARNING", "ERROR")
    ]


def test_what_could_not_be_written_is_an_error_in_threads_too(batches: Batches, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def run() -> None:
        with batches.make_blocking(**OPTIONS, record=folder) as batch:
            folder.rmdir()
            with batch.sample("a"):
                pass

    with pytest.raises(coresched.RecordingError, match="lacks 2 events"):
        run()


@pytest.mark.parametrize(
    ("counts", "error", "expected"),
    [
        ({"prompt_tokens": 0, "output_tokens": 1}, ValueError, "prompt_tokens must be .*1.*got 0"),
        ({"prompt_tokens": 1.5, "output_tokens": 1}, TypeError, "prompt_tokens must be an int.*got 1.5"),
        ({"prompt_tokens": 5, "output_tokens": True}, TypeError, "output_tokens must be an int.*got True"),
        ({"prompt_tokens": 5, "output_tokens": -1}, ValueError, "output_tokens must be .*0.*got -1"),
        (
            {"prompt_tokens": 5, "output_tokens": 1, "cached_tokens": 6},
            ValueError,
            "cached_tokens must be at most prompt_tokens, which is 5, got 6",
        ),
    ],
)
async def test_counts_that_cannot_be_are_refused_recorded_or_not(
    batches: Batches, counts: dict[str, Any], error: type[Exception], expected: str
) -> None:
    async with batches.make(**OPTIONS) as batch, batch.sample("a") as sample:
        async with sample.inference() as turn:
            with pytest.raises(error, match=expected):
                turn.usage(**counts)
        with pytest.raises(RuntimeError, match="while its block is open; call usage"):
            turn.usage(prompt_tokens=5, output_tokens=1)
