"""A gate from threads, several asyncio loops and trio, embedded and at a service."""

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from batches import Batches

from coresched import BatchClosedError, TransitionError
from coresched.client.gate import Gate, sample_in_scope
from coresched.client.label import label_in_scope
from coresched.client.turn import ROUTING_HEADER
from coresched.trajectory.importers.run import ImportReport, import_traces


@pytest.fixture
def make(batches: Batches, request: pytest.FixtureRequest) -> Any:
    made: list[Gate] = []

    def make(**options: Any) -> Gate:
        if batches.address is not None:
            options |= {"service": batches.address, "batch": f"{request.node.name}-{len(made)}"}
        made.append(Gate(**options))
        return made[-1]

    yield make
    for gate in made:
        gate.close()


class Held:
    """How many hold a slot, and the most that ever did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


def in_thread(gate: Gate, name: str, admitted: Held, executing: Held, resident: Held) -> None:
    with gate.sample(name) as sample, admitted, sample.resident(), resident:
        for _ in range(2):
            with sample.inference() as turn:
                assert turn.headers[ROUTING_HEADER] == name == label_in_scope()
            with sample.environment() as stage, executing:
                assert stage.queue_s >= 0
                assert sample_in_scope() is sample
                time.sleep(0.002)
    assert sample_in_scope() is None


async def in_task(gate: Gate, name: str, admitted: Held, executing: Held, resident: Held, sleep: Any) -> None:
    async with gate.sample(name) as sample:
        with admitted:
            async with sample.resident():
                with resident:
                    for _ in range(2):
                        async with sample.inference() as turn:
                            assert turn.headers[ROUTING_HEADER] == name == label_in_scope()
                        async with sample.environment():
                            with executing:
                                assert sample_in_scope() is sample
                                await sleep(0.002)
    assert sample_in_scope() is None


def test_a_sample_that_was_left_is_in_no_scope(make: Any) -> None:
    gate = make(sample_concurrency=2)
    one, other = gate.sample("one"), gate.sample("other")
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert sample_in_scope() is other
    other.__exit__(None, None, None)
    assert sample_in_scope() is None


def in_asyncio(run: Callable[..., Awaitable[None]], gate: Gate, names: list[str], *held: Held) -> None:
    async def all_of_them() -> None:
        await asyncio.gather(*(run(gate, name, *held, asyncio.sleep) for name in names))

    asyncio.run(all_of_them())


def in_trio(run: Callable[..., Awaitable[None]], gate: Gate, names: list[str], *held: Held) -> None:
    async def all_of_them() -> None:
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(run, gate, name, *held, trio.sleep)

    trio.run(all_of_them)


def test_threads_and_event_loops_share_the_capacities(make: Any) -> None:
    gate = make(sample_concurrency=4, environment_concurrency=2, resident_concurrency=3)
    admitted, executing, resident = Held(), Held(), Held()
    with ThreadPoolExecutor(9) as pool:
        runs = [pool.submit(in_thread, gate, f"thread-{n}", admitted, executing, resident) for n in range(6)]
        for loop, way in enumerate((in_asyncio, in_asyncio, in_trio)):
            names = [f"loop-{loop}-{n}" for n in range(6)]
            runs.append(pool.submit(way, in_task, gate, names, admitted, executing, resident))
        for run in runs:
            run.result()
    gate.close()
    totals = gate.report().totals
    assert (totals.samples, totals.finished, totals.turns, totals.environment_stages) == (24, 24, 48, 48)
    assert admitted.most == 4
    assert executing.most == 2
    assert resident.most == 3


@contextmanager
def held_for_a_while(gate: Gate, block: str) -> Iterator[None]:
    """Another sample holds the only slot; it gives it back 0.05 s after the body has begun."""
    begun, release = threading.Event(), threading.Event()

    def hold() -> None:
        with gate.sample("holder") as sample, getattr(sample, block)():
            begun.set()
            assert release.wait(10)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        assert begun.wait(10)
        threading.Timer(0.05, release.set).start()
        yield
        holding.result()


def test_waits_are_told_to_the_sample(make: Any) -> None:
    gate = make(sample_concurrency=2, environment_concurrency=1)
    with held_for_a_while(gate, "environment"), gate.sample("waiter") as sample:
        with sample.environment() as stage:
            pass
        assert sample.environment_queue_s == stage.queue_s > 0.02
        with sample.environment() as again:
            pass
        assert sample.environment_queue_s == stage.queue_s + again.queue_s


async def in_stages(gate: Gate, name: str, stage_s: float, sleep: Any) -> None:
    async with gate.sample(name) as sample, sample.resident():
        async with sample.inference():
            await sleep(stage_s)
        async with sample.environment():
            await sleep(stage_s)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_no_slot_is_lost_in_a_storm_of_cancellations(make: Any, loop: str) -> None:
    drawn = random.Random(5)
    patience = [drawn.uniform(0, 0.02) for _ in range(120)]
    gate = make(sample_concurrency=3, environment_concurrency=1, resident_concurrency=2)

    async def on_asyncio() -> None:
        runs = [
            asyncio.wait_for(in_stages(gate, f"patient-{n}", s / 10, asyncio.sleep), s)
            for n, s in enumerate(patience)
        ]
        for outcome in await asyncio.gather(*runs, return_exceptions=True):
            assert outcome is None or isinstance(outcome, TimeoutError | asyncio.TimeoutError), outcome

    async def on_trio() -> None:
        async def one(number: int, patience_s: float) -> None:
            with trio.move_on_after(patience_s):
                await in_stages(gate, f"patient-{number}", patience_s / 10, trio.sleep)

        async with trio.open_nursery() as nursery:
            for number, patience_s in enumerate(patience):
                nursery.start_soon(one, number, patience_s)

    asyncio.run(on_asyncio()) if loop == "asyncio" else trio.run(on_trio)
    for name in ("after-1", "after-2", "after-3", "after-4"):  # more than there are slots
        in_thread(gate, name, Held(), Held(), Held())
    gate.close()
    totals = gate.report().totals
    held = totals.waiting + totals.admitted + totals.environment_queued + totals.environment_running
    held += totals.resident_queued + totals.resident
    assert held == 0
    assert totals.finished + totals.withdrawn == totals.samples
    assert totals.finished >= 4


def test_closing_tells_whoever_waits(make: Any) -> None:
    gate = make(sample_concurrency=1)

    def wait() -> None:
        with pytest.raises(BatchClosedError), gate.sample("second"):
            pass

    async def await_it() -> None:
        with pytest.raises(BatchClosedError):
            async with gate.sample("third"):
                pass

    with gate.sample("first") as sample, ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(wait), pool.submit(lambda: asyncio.run(await_it()))]
        time.sleep(0.1)  # most likely they wait by now; else they are refused at once, with the same error
        gate.close()
        for one in waits:
            one.result(10)
        with pytest.raises(BatchClosedError):
            sample.environment().__enter__()  # a block of its own, since entering must fail
    gate.close()
    with pytest.raises(BatchClosedError):
        gate.sample("fourth")


def test_a_step_out_of_order_changes_nothing(make: Any) -> None:
    gate = make(sample_concurrency=1, environment_concurrency=1)
    with gate.sample("one") as sample:
        with sample.environment(), pytest.raises(TransitionError), sample.inference():
            pass
        with sample.inference():
            pass


def test_the_wait_for_a_resident_slot_is_told_to_the_sample(make: Any) -> None:
    gate = make(sample_concurrency=2, resident_concurrency=1)
    with held_for_a_while(gate, "resident"), gate.sample("waiter") as sample:
        with sample.resident() as held, pytest.raises(TransitionError, match="holds a resident slot"):
            sample.resident().__enter__()
        assert sample.resident_wait_s == held.queue_s > 0.02
        with sample.environment(), pytest.raises(TransitionError, match="in an environment stage"):
            sample.resident().__enter__()
    gate.close()
    assert gate.report().samples["waiter"].resident_wait_s == pytest.approx(held.queue_s)


def test_a_failed_turn_may_be_tried_again(make: Any) -> None:
    gate = make(sample_concurrency=1)
    with gate.sample("one") as sample:
        with pytest.raises(OSError, match="broken"), sample.inference():
            raise OSError("broken")
        assert label_in_scope() is None
        with sample.inference():
            pass
    gate.close()
    times = gate.report().samples["one"]
    assert times.turns == 1
    assert times.failed_inference_s > 0
    assert times.state == "finished"


def test_a_gate_records_as_its_batch_does(make: Any, tmp_path: Path) -> None:
    gate = make(sample_concurrency=1, environment_concurrency=1, record=tmp_path / "run")
    with gate.sample("task-1") as sample:
        for _ in range(2):
            with sample.inference() as turn:
                turn.usage(prompt_tokens=100, cached_tokens=60, output_tokens=20)
            with sample.environment():
                time.sleep(0.02)
    with pytest.raises(RuntimeError, match="inside it"):
        turn.usage(prompt_tokens=1, output_tokens=1)
    gate.close()
    (trajectory,) = import_traces([tmp_path / "run"], ImportReport())
    assert [one.output_tokens for one in trajectory.turns] == [20, 20]
    assert trajectory.turns[0].env is not None
    assert trajectory.turns[0].env.duration_s >= 0.02
