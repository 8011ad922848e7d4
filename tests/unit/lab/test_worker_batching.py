"""The live worker request by request, in virtual time."""

from array import array

import pytest
from simulated import small_model

from coresched.lab.simulator.memory import split_memory
from coresched.lab.worker.batching import LiveWorker, WorkerSettings
from coresched.lab.worker.requests import LiveRequest, make_request


class World:
    """One worker with 2000 KV tokens, and its clock."""

    def __init__(self) -> None:
        model = small_model(pool_tokens=4_000)
        self.wake: float | None = None
        self.finished: list[LiveRequest] = []
        self.worker = LiveWorker(
            WorkerSettings("fcfs", 4),
            model,
            split_memory(model, 1.0),
            wake_at=self.set_wake,
            started=lambda request, t: None,
            finished=lambda request, t: self.finished.append(request),
        )

    def set_wake(self, t: float) -> None:
        self.wake = t

    def submit(self, t: float, prompt: int, output: int, label: str | None = None) -> tuple[int, LiveRequest]:
        request = make_request(array("q", range(prompt)), label=label, output_tokens=output, streamed=True)
        return self.worker.submit(request, t), request

    def step(self) -> float:
        assert self.wake is not None
        t, self.wake = self.wake, None
        self.worker.wake(t)
        return t

    def run(self) -> None:
        while self.wake is not None:
            self.step()


def test_a_queue_that_was_refused_goes_on_when_the_running_request_is_aborted() -> None:
    world = World()
    first, _ = world.submit(0.0, prompt=200, output=1500)
    t = world.step()
    _, second = world.submit(t, prompt=600, output=10)  # does not fit beside the first
    world.step()
    assert world.worker.full
    world.worker.abort(first, t + 1)
    world.run()
    assert world.finished == [second]


def test_an_aborted_prompt_is_found_as_far_as_it_was_computed() -> None:
    world = World()
    first, _ = world.submit(0.0, prompt=600, output=10, label="a")  # chunks of 256
    world.step()
    world.worker.abort(first, 0.1)
    world.run()
    _, again = world.submit(1.0, prompt=600, output=10, label="a")
    world.run()
    assert (again.cached_tokens, world.finished) == (512, [again])


def test_a_label_twice_at_once_has_two_entries_and_the_later_end_counts() -> None:
    world = World()
    world.submit(0.0, prompt=100, output=40, label="a")
    world.submit(0.0, prompt=100, output=80, label="a")
    world.run()
    assert len(world.worker.pools.idle) == 2
    later = world.finished[-1]
    prompt = later.prompt + array("q", later.reply) + array("q", [5])
    request = make_request(prompt, label="a", output_tokens=1)
    world.worker.submit(request, 20.0)
    world.run()
    assert request.cached_tokens == 180


def test_a_cleared_cache_has_room_for_all_and_nothing_to_find() -> None:
    world = World()
    for label in ("a", "b", None):
        world.submit(0.0, prompt=100, output=5, label=label)
    world.run()
    pools = world.worker.pools
    assert pools.used_pages > 0
    pools.clear()
    assert (len(pools.idle), pools.used_pages, pools.used_slot_units, pools.evictions) == (0, 0, 0, 3)
    for label in ("a", None):
        _, again = world.submit(10.0, prompt=100, output=5, label=label)
        world.run()
        assert again.cached_tokens == 0


def test_tokens_pass_with_the_steps() -> None:
    world = World()
    _, request = world.submit(0.0, prompt=100, output=5)
    t = world.step()
    seen = [dict(world.worker.produced(t))[request]]
    while (due := world.worker.next_tokens_at(t)) is not None and due < world.wake:
        t = due
        seen.append(dict(world.worker.produced(t))[request])
    assert seen == [1, 2, 3, 4]
    assert world.step() == pytest.approx(due)
    assert world.finished == [request]
    assert world.worker.next_tokens_at(t) is None
