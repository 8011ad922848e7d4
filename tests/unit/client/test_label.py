"""The label in scope: who sees it, how long, and what a turn that has ended leaves behind."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

import coresched
from coresched import sync
from coresched.client.label import label_in_scope, worker_in_scope


def test_the_innermost_label_counts_and_the_outer_one_returns() -> None:
    assert label_in_scope() is None
    with coresched.label("outer") as name:
        assert name == "outer"
        with coresched.label("inner"):
            assert label_in_scope() == "inner"
        assert label_in_scope() == "outer"
    assert label_in_scope() is None


def test_a_block_that_raises_takes_its_label_along() -> None:
    with pytest.raises(KeyError), coresched.label("a"):
        raise KeyError
    assert label_in_scope() is None


@pytest.mark.parametrize("bad", ["", "x" * 513, "\ud800"])
def test_what_is_no_label_is_refused_before_it_is_in_scope(bad: str) -> None:
    with pytest.raises(ValueError, match=r"^label must"):
        coresched.label(bad)
    with pytest.raises(TypeError, match="label must be a str, got 7"):
        coresched.label(7)  # type: ignore[arg-type]


def test_one_object_is_one_block_at_a_time() -> None:
    block = coresched.label("a")
    with block, pytest.raises(RuntimeError, match="entered already"), block:
        pass
    assert label_in_scope() is None
    with block:
        assert label_in_scope() == "a"


async def test_tasks_see_the_label_they_began_in_and_not_each_others() -> None:
    seen: dict[str, list[str | None]] = {}

    async def call(name: str) -> None:
        await asyncio.sleep(0)
        seen.setdefault(name, []).append(label_in_scope())

    async def trajectory(name: str) -> None:
        with coresched.label(name):
            await asyncio.gather(*(call(name) for _ in range(3)))
            seen[name].append(await asyncio.to_thread(label_in_scope))

    await asyncio.gather(*(trajectory(f"t{i}") for i in range(5)))
    assert seen == {f"t{i}": [f"t{i}"] * 4 for i in range(5)}
    assert label_in_scope() is None


async def test_a_task_keeps_the_label_of_the_block_it_began_in() -> None:
    async def later() -> str | None:
        await asyncio.sleep(0)
        return label_in_scope()

    with coresched.label("a"):
        task = asyncio.ensure_future(later())
    assert label_in_scope() is None
    assert await task == "a"


def test_a_new_thread_begins_without_a_label() -> None:
    seen = []
    with coresched.label("a"):
        thread = threading.Thread(target=lambda: seen.append(label_in_scope()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_a_label_left_in_another_context_is_gone_from_the_one_it_was_entered_in() -> None:
    def body() -> Iterator[str | None]:
        with coresched.label("a"):
            yield label_in_scope()

    generator = body()
    assert next(generator) == "a"
    contextvars.Context().run(generator.close)
    assert label_in_scope() is None


async def test_a_turn_puts_its_label_and_worker_in_scope() -> None:
    async with (
        coresched.Batch(sample_concurrency=2, workers=["w0", "w1"]) as batch,
        batch.sample("a") as sample,
    ):
        assert label_in_scope() is None
        async with sample.inference() as turn:
            assert label_in_scope() == "a"
            assert turn.worker is not None
            assert worker_in_scope("a") == turn.worker
            assert worker_in_scope("b") is None
            with coresched.label("b"):  # a sub-agent's own
                assert (label_in_scope(), worker_in_scope("b")) == ("b", None)
            with coresched.label("a"):  # says the same once more
                assert worker_in_scope("a") == turn.worker
        assert (label_in_scope(), worker_in_scope("a")) == (None, None)
        async with sample.environment():
            assert label_in_scope() is None
        with pytest.raises(KeyError):
            async with sample.inference():
                raise KeyError
        assert label_in_scope() is None


async def test_samples_of_one_batch_do_not_see_each_other() -> None:
    async def run(batch: coresched.Batch, name: str) -> None:
        async with batch.sample(name) as sample:
            for _ in range(3):
                async with sample.inference() as turn:
                    await asyncio.sleep(0)
                    assert (label_in_scope(), worker_in_scope(name)) == (name, turn.worker)
                await asyncio.sleep(0)
                assert label_in_scope() is None

    async with coresched.Batch(sample_concurrency=4, workers=["w0", "w1"]) as batch:
        await asyncio.gather(*(run(batch, f"t{i}") for i in range(12)))


async def test_a_task_that_outlives_its_turn_has_neither_label_nor_worker_of_it() -> None:
    over = asyncio.Event()

    async def outlives() -> tuple[str | None, str | None]:
        await over.wait()
        return label_in_scope(), worker_in_scope("a")

    async with coresched.Batch(sample_concurrency=1, workers=["w0"]) as batch, batch.sample("a") as sample:
        with coresched.label("around"):
            async with sample.inference():
                task = asyncio.ensure_future(outlives())
                await asyncio.sleep(0)
            over.set()
            assert await task == ("around", None)


async def test_a_turn_closed_in_another_task_is_closed_for_the_one_that_opened_it() -> None:
    async with coresched.Batch(sample_concurrency=1, workers=["w0"]) as batch, batch.sample("a") as sample:

        async def turns() -> AsyncIterator[str | None]:
            async with sample.inference():
                yield label_in_scope()

        generator = turns()
        assert await anext(generator) == "a"
        await asyncio.ensure_future(generator.aclose())
        assert (label_in_scope(), worker_in_scope("a")) == (None, None)
        async with sample.inference():
            assert label_in_scope() == "a"


async def test_turns_closed_out_of_order_leave_the_open_one_in_scope() -> None:
    async with (
        coresched.Batch(sample_concurrency=2, workers=["w0"]) as batch,
        batch.sample("a") as first,
        batch.sample("b") as second,
    ):
        outer, inner = first.inference(), second.inference()
        await outer.__aenter__()
        await inner.__aenter__()
        await outer.__aexit__(None, None, None)
        assert label_in_scope() == "b"
        await inner.__aexit__(None, None, None)
        assert label_in_scope() is None


def test_a_blocking_turn_is_in_scope_in_its_thread_and_in_a_loop_run_there() -> None:
    async def in_a_loop() -> tuple[str | None, str | None]:
        return label_in_scope(), worker_in_scope("a")

    with (
        sync.Batch(sample_concurrency=1, workers=["w0"]) as batch,
        batch.sample("a") as sample,
        sample.inference(),
    ):
        assert asyncio.run(in_a_loop()) == ("a", "w0")
    assert label_in_scope() is None
