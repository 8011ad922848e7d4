"""What a batch and its kin say of a wrong argument, or of a use too early: at once, and in one line."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_batches import fake_batches

import coresched
from coresched import sync
from coresched.client.shared import SharedRouter

TARGET = "127.0.0.1:50071"

BATCHES: dict[str, Callable[[], Any]] = {
    "Batch": lambda: coresched.Batch(sample_concurrency=1),
    "sync.Batch": lambda: sync.Batch(sample_concurrency=1),
    "connect": lambda: coresched.connect(TARGET, batch="b", sample_concurrency=1),
    "sync.connect": lambda: sync.connect(TARGET, batch="b", sample_concurrency=1),
}


def outcome(result: Any) -> Any:
    """What a call of either face comes to: awaited, or its first item."""
    if hasattr(result, "__anext__"):
        result = result.__anext__()
    if hasattr(result, "__await__"):

        async def run() -> Any:
            return await result

        return asyncio.run(run())
    return next(result) if hasattr(result, "__next__") else result


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(
    "use",
    [
        lambda batch: batch.sample("x"),
        lambda batch: batch.submit(["x"]),
        lambda batch: batch.admissions(),
    ],
    ids=["sample", "submit", "admissions"],
)
def test_a_batch_must_be_entered_first(make: Callable[[], Any], use: Callable[[Any], Any]) -> None:
    with pytest.raises(
        RuntimeError, match=r"^the batch is not open; enter it first, with `with` or `async with`$"
    ):
        outcome(use(make()))


def stages(sample: Any) -> list[Any]:
    return [sample.inference(), sample.environment()]


ENTER_FIRST = "^sample 'x' must be entered before its stages, with `with` or `async with`$"


async def test_so_must_a_sample() -> None:
    async with coresched.Batch(sample_concurrency=1) as batch:
        await batch.submit(["x"])
        for stage in stages(batch.sample("x")):
            with pytest.raises(RuntimeError, match=ENTER_FIRST):
                await stage.__aenter__()


def test_so_must_a_sample_of_threads() -> None:
    with sync.Batch(sample_concurrency=1) as batch:
        for stage in stages(batch.sample("x")):
            with pytest.raises(RuntimeError, match=ENTER_FIRST):
                stage.__enter__()


async def test_so_must_a_sample_of_a_service() -> None:
    with fake_batches() as fake:
        async with coresched.connect(fake.address, batch="b", sample_concurrency=1) as batch:
            for stage in stages(batch.sample("x")):
                with pytest.raises(RuntimeError, match=ENTER_FIRST):
                    await stage.__aenter__()
        with sync.connect(fake.address, batch="b", sample_concurrency=1) as blocking:
            for stage in stages(blocking.sample("x")):
                with pytest.raises(RuntimeError, match=ENTER_FIRST):
                    stage.__enter__()


@pytest.mark.parametrize("name", ["connect", "sync.connect"])
@pytest.mark.parametrize("use", [lambda batch: batch.refresh(), lambda batch: batch.report()])
def test_so_must_one_of_a_service_before_its_report(name: str, use: Callable[[Any], Any]) -> None:
    with pytest.raises(RuntimeError, match="the batch is not open; enter it first"):
        outcome(use(BATCHES[name]()))
    assert BATCHES[name]().progress is None


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ("task-1", "ids must be an iterable of sample ids, got 'task-1' of type str"),
        (b"task-1", "ids must be an iterable of sample ids, got b'task-1' of type bytes"),
        (5, "ids must be an iterable of sample ids, got 5 of type int"),
        (None, "ids must be an iterable of sample ids, got None of type NoneType"),
        (["a", 5], "sample id must be a str, got 5 of type int"),
    ],
)
def test_ids_to_submit_are_several(make: Callable[[], Any], ids: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"^{said}$"):
        outcome(make().submit(ids))


@pytest.mark.parametrize("workers", ["w0", b"w0", 5])
@pytest.mark.parametrize(
    "make",
    [
        coresched.LoadBoundedRouter,
        SharedRouter,
        lambda workers: coresched.Batch(sample_concurrency=1, workers=workers),
        lambda workers: sync.Batch(sample_concurrency=1, workers=workers),
    ],
    ids=["LoadBoundedRouter", "SharedRouter", "Batch", "sync.Batch"],
)
def test_workers_are_several(make: Callable[[Any], Any], workers: Any) -> None:
    kind = type(workers).__name__
    with pytest.raises(
        TypeError, match=f"^workers must be names or a mapping to weights, got {workers!r} of type {kind}$"
    ):
        make(workers)


@pytest.mark.parametrize("exclude", ["w0", 5])
def test_workers_to_exclude_are_several(exclude: Any) -> None:
    with pytest.raises(TypeError, match=r"^exclude must be a collection of worker names, got "):
        coresched.LoadBoundedRouter(["w0", "w1"]).route("x", exclude)
    with (
        sync.Batch(sample_concurrency=1, workers=["w0", "w1"]) as batch,
        batch.sample("x") as sample,
        pytest.raises(TypeError, match=r"^exclude must be a collection of worker names, got "),
    ):
        sample.inference(exclude=exclude)


@pytest.mark.parametrize("connect", [coresched.connect, sync.connect], ids=["connect", "sync.connect"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keep_open": "yes"}, "keep_open must be True or False, got 'yes' of type str"),
        ({"keep_open": 1}, "keep_open must be True or False, got 1 of type int"),
        ({"grace_s": 0.5}, "grace_s must be from 1 to 3600 seconds, got 0.5"),
        ({"grace_s": "30"}, "grace_s must be an int or a float, got '30'"),
        ({"batch": ""}, "batch must not be empty"),
        ({"batch": 7}, "batch must be a str, got 7"),
        ({"sample_concurrency": 0}, "sample_concurrency must be at least 1, got 0"),
        ({"environment_concurrency": 2.5}, "environment_concurrency must be an int, got 2.5"),
        ({"environment_policy": "lifo"}, "environment_policy must be .*, got 'lifo'"),
        ({"environment_policy": ["caas"]}, "environment_policy must be .*, got"),
        ({"band_s": 0}, "band_s must be above 0, got 0"),
        ({"bucket_s": float("nan")}, "bucket_s must be a finite number, got nan"),
        ({"token": 5}, "token must be a str, got a value of type int"),
        ({"token": "two words"}, "token must be of visible ASCII characters"),
        ({"ca": 5}, "ca must be the path of a PEM file, got 5 of type int"),
        ({"ca": Path("/nowhere/ca.pem")}, "ca .*/nowhere/ca.pem"),
        ({"certificate": "c.pem"}, "certificate must be given with key; add it"),
        (
            {"workers": ["w0"]},
            "workers must be given to the service, by `coresched serve --worker NAME` or the rpc",
        ),
        (
            {"router": "lbch"},
            "router must be given to the service, by `coresched serve --router NAME`, not to connect",
        ),
        (
            {"load_bound": 2.0},
            "load_bound must be given to the service, by `coresched serve --load-bound A`, not to",
        ),
        ({"slack": 1}, "slack must be given to the service, by `coresched serve --slack N`, not to"),
    ],
)
def test_every_option_is_checked_as_connect_is_called(
    connect: Callable[..., Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{said}"):
        connect(TARGET, **{"batch": "b", "sample_concurrency": 1, **options})


@pytest.mark.parametrize("make", [coresched.Batch, sync.Batch], ids=["Batch", "sync.Batch"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sample_concurrency": True}, "sample_concurrency must be an int, got True"),
        ({"environment_concurrency": 0}, "environment_concurrency must be at least 1"),
        ({"environment_policy": ["caas"]}, "environment_policy must be .*, got"),
        ({"band_s": "1"}, "band_s must be an int or a float"),
        ({"bucket_s": 0}, "bucket_s must be above 0"),
        ({"workers": []}, "workers must name at least one worker, got none"),
        ({"workers": {"w0": "heavy"}}, "weight of 'w0' must be an int or a float"),
        ({"load_bound": 0.5}, "load_bound must be at least 1"),
        ({"workers": ["w0"], "slack": -1}, "slack must be at least 0, got -1"),
        ({"slack": 1}, "slack is 1, of workers to route among; give workers, or leave it out"),
        ({"router": "ring"}, "router must be one of lbch, sticky-bounded, got 'ring'"),
        (
            {"router": "sticky-bounded"},
            "router is 'sticky-bounded', for workers to route among; give workers",
        ),
    ],
)
def test_so_is_every_option_of_a_batch(make: Callable[..., Any], options: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{said}"):
        make(**{"sample_concurrency": 1, **options})
