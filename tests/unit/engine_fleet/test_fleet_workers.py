"""A fleet's engines as workers of a lockstep run: what they are sent, and what comes of their answers."""

import socket
import threading
from array import array
from collections.abc import Callable, Iterator
from math import inf
from types import SimpleNamespace

import pytest
from coresched_engine.fleet.deployment import STATELESS_SLOTS, EngineDeployment, least_costly, worker_model
from coresched_engine.fleet.processes import Engine, ProcessEndedError
from coresched_engine.fleet.wire import (
    Advance,
    Advanced,
    Channel,
    Close,
    Counts,
    Ended,
    Failed,
    Parsed,
    Ready,
    Submit,
)
from coresched_engine.fleet.workers import EngineWorkers
from simulated import trajectory

from coresched.errors import InputError
from coresched.lab.simulator.memory import SLOT_UNITS, split_memory
from coresched.lab.simulator.model import load_worker_model
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import build_workload

READY = Ready(
    vocabulary=1000,
    longest_prompt=5_000,
    longest_request=6_000,
    kv_tokens=240_103,
    state_slots=21,
    state_slot_tokens=75_980_800 / 8_064,
    slots_per_request=5,
    shared_pool=False,
    max_running_requests=4,
    page_size=1,
    prefill_chunk_tokens=8_192,
    overlap=True,
)
BATCH = [trajectory("a", [(3, 1.0, 4), (2, None, 0)], prompt=10), trajectory("b", [(1, None, 0)], prompt=7)]
WORKLOAD = build_workload(BATCH, page_tokens=1)


class NoTemplate:
    """Stands where the engine was forked from: it has ended by a signal."""

    def reap(self, pid: int) -> int:
        return -9

    def log_error(self, message: str) -> ProcessEndedError:
        return ProcessEndedError(message, ["its last line"])


class Fleet:
    """One engine, played by a thread."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.theirs = Channel(theirs)
        self._ours = Channel(ours)
        self._threads: list[threading.Thread] = []
        engine = Engine("worker 0 (SGLang)", 0, self._ours, NoTemplate())  # type: ignore[arg-type]
        self.workers = EngineWorkers([engine], READY, BATCH, WORKLOAD, seed=5, longer="--memory")
        self.submitted: list[Submit] = []

    def play(self, advance: Callable[[Advance], Advanced | Failed | None]) -> None:
        """``advance`` answers; None: the process dies."""

        def main() -> None:
            while (message := self.theirs.receive()) is not None:
                if isinstance(message, Submit):
                    self.submitted.append(message)
                elif isinstance(message, Close):
                    self.theirs.send(Counts(2.5, 21))
                else:
                    assert isinstance(message, Advance)
                    if (answer := advance(message)) is None:
                        return self.theirs.close()
                    self.theirs.send(answer)
            return None

        self._threads.append(threading.Thread(target=main, daemon=True))
        self._threads[-1].start()

    def close(self) -> None:
        self._ours.close()
        for thread in self._threads:
            thread.join(10)
        self.theirs.close()


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet()
    yield fleet
    fleet.close()


def ended(request_id: str, at: float, output: list[int], **fields: object) -> Ended:
    known = {
        "first_token_s": at - 0.5,
        "cached_tokens": 4,
        "queue_s": 0.25,
        "retractions": 0,
        "aborted": None,
    }
    return Ended(request_id=request_id, finished_s=at, output=array("q", output).tobytes(), **known | fields)  # type: ignore[arg-type]


def test_a_trajectory_is_sent_turn_by_turn_with_what_the_engine_replied(fleet: Fleet) -> None:
    answers = iter([[ended("000000-000000", 1.5, [7, 8, 9])], [ended("000000-000001", 4.0, [1, 2])]])
    fleet.play(lambda message: Advanced(inf if message.until > 3 else 9.0, next(answers)))
    workers = fleet.workers
    assert workers.next_event_s(0) == inf
    workers.enqueue(0, 0, 0, 1.0)
    assert workers.next_event_s(0) == 1.0
    (finished,) = workers.advance([0], 2.0)[0]
    assert (finished.sample, finished.first_token_s, finished.finished_s) == (0, 1.0, 1.5)
    assert (finished.cached_tokens, finished.queue_s) == (4, 0.25)
    # A busy engine looks for arrivals when its step has ended, and nothing finishes before.
    workers.enqueue(0, 0, 1, 3.0)
    assert workers.next_event_s(0) == 9.0
    workers.advance([0], 4.0)
    assert workers.counts()[0].prefilled_tokens == 21
    first, second = fleet.submitted
    assert (first.label, first.at, first.output_tokens) == ("a", 1.0, 3)
    prompts = [list(array("q", each.prompt)) for each in (first, second)]
    assert len(prompts[0]) == 10
    assert prompts[1][:13] == [*prompts[0], 7, 8, 9]
    assert len(prompts[1]) == 17


def test_an_engine_that_dies_is_named_and_nobody_waits_for_it(fleet: Fleet) -> None:
    fleet.play(lambda _: None)
    fleet.workers.enqueue(0, 1, 2, 1.0)
    with pytest.raises(ProcessEndedError, match=r"^worker 0 \(SGLang\) was ended by signal 9$") as error:
        fleet.workers.advance([0], 2.0)
    assert error.value.said == ["its last line"]


def test_an_engine_that_fails_says_why(fleet: Fleet) -> None:
    fleet.play(lambda _: Failed("StuckError: 3 requests wait"))
    with pytest.raises(ProcessEndedError, match=r"worker 0 \(SGLang\) failed: StuckError: 3 requests wait"):
        fleet.workers.advance([0], 2.0)


def test_a_turn_that_the_engine_cuts_short_is_no_result(fleet: Fleet) -> None:
    fleet.play(lambda _: Advanced(inf, [ended("000000-000000", 1.5, [7], aborted="out of memory")]))
    with pytest.raises(ProcessEndedError, match="turn 0 of 'a' after 1 of 3 tokens: out of memory"):
        fleet.workers.advance([0], 2.0)


def test_a_turn_without_room_is_refused_before_any_work() -> None:
    batch = [trajectory("long", [(1_001, None, 0)], prompt=5_000)]
    with pytest.raises(InputError, match=r"trajectory 'long': turns\[0\] has 5000 prompt and 1001 output"):
        EngineWorkers([], READY, batch, build_workload(batch, page_tokens=1), seed=0, longer="--memory")


def test_pools_of_an_engine_are_those_of_its_worker_model() -> None:
    times = load_worker_model().times
    model = worker_model(READY, times, "mine")
    memory = split_memory(model, model.default_state_ratio * (1 + 1e-9))
    assert abs(memory.kv_tokens - READY.kv_tokens) <= 1
    assert memory.slot_units == 21 * SLOT_UNITS
    assert memory.max_running == READY.max_running_requests
    assert least_costly(model, mixed=True, shared_pool=False).times.prefill_batch_s == 0
    assert least_costly(model, mixed=False, shared_pool=False) == model


def test_a_model_without_states_pays_next_to_nothing_for_them() -> None:
    ready = Ready(
        **{name: getattr(READY, name) for name in Ready.__struct_fields__}
        | {"state_slots": None, "state_slot_tokens": 0.0, "slots_per_request": 1}
    )
    model = worker_model(ready, load_worker_model().times, "dense")
    memory = split_memory(model, model.default_state_ratio * (1 + 1e-9))
    assert abs(memory.kv_tokens - READY.kv_tokens) <= 1
    assert memory.max_running == READY.max_running_requests
    assert model.pool_tokens == READY.kv_tokens + READY.max_running_requests
    assert memory.slot_units == STATELESS_SLOTS * READY.max_running_requests * SLOT_UNITS


def test_one_pool_for_tokens_and_states_is_counted_once() -> None:
    shared = {"kv_tokens": 12_000, "state_slots": 40, "state_slot_tokens": 300.0}
    ready = Ready(
        **{name: getattr(READY, name) for name in Ready.__struct_fields__}
        | shared
        | {"slots_per_request": 2, "shared_pool": True, "page_size": 100}
    )
    model = worker_model(ready, load_worker_model().times, "shared")
    assert model.pool_tokens == 12_000
    assert model.request_state_tokens == 600
    bounds = least_costly(model, mixed=True, shared_pool=True)
    assert (bounds.request_state_tokens, bounds.slots_per_request) == (300, 1)


class Deployment(EngineDeployment):
    longer = "--memory"

    def arguments(self, settings: RunSettings) -> dict[str, object]:
        return {}


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ({}, None),
        ({"shared_pool": True}, "an engine keeps KV and states in one pool"),
        ({"state_slots": None}, "this model has no recurrent states"),
    ],
)
def test_why_there_is_nothing_to_balance(pools: dict[str, object], said: str | None) -> None:
    ready = Ready(**{name: getattr(READY, name) for name in Ready.__struct_fields__} | pools)
    template = SimpleNamespace(engine="an engine")
    parsed = Parsed(version="1", policy="fcfs", policies=["fcfs"], given=[], mixed=False)
    times = load_worker_model().times
    assert Deployment(template, parsed, ready, times, "mine").unbalanced == said  # type: ignore[arg-type]
