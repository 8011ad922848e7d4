"""One router for many threads: every request is released once, however often and wherever it ends."""

import gc
import random
import threading

import pytest

from coresched.client.shared import Flight, SharedRouter
from coresched.core import LoadBoundedRouter, StickyBoundedRouter


def test_it_routes_as_the_router_does() -> None:
    ours, plain = SharedRouter(["w0", "w1", "w2"]), LoadBoundedRouter(["w0", "w1", "w2"])
    flights = [ours.route(f"t{i}") for i in range(50)]
    assert [flight.worker for flight in flights] == [plain.route(f"t{i}") for i in range(50)]
    assert ours.loads() == plain.loads()
    assert ours.workers() == plain.workers()
    assert ours.home("t7") == plain.home("t7")
    assert ours.route("t7", exclude=[plain.home("t7")]).worker == plain.route("t7", [plain.home("t7")])


def test_the_options_are_those_of_the_router() -> None:
    with pytest.raises(ValueError, match="load_bound must be at least 1"):
        SharedRouter(["w0"], load_bound=0.5)
    with pytest.raises(LookupError, match="exclude must leave one"):
        SharedRouter(["w0"]).route("a", exclude=["w0"])
    options = {"load_bound": 1.0, "virtual_nodes": 16}
    heavy = SharedRouter({"w0": 1.0, "w1": 3.0}, **options)  # type: ignore[arg-type]
    plain = LoadBoundedRouter({"w0": 1.0, "w1": 3.0}, **options)  # type: ignore[arg-type]
    flights = [heavy.route(f"t{i}") for i in range(400)]
    assert [flight.worker for flight in flights] == [plain.route(f"t{i}") for i in range(400)]


def test_sticky_bounded_is_shared_too() -> None:
    names = ["w0", "w1", "w2"]
    ours, plain = SharedRouter(names, router="sticky-bounded"), StickyBoundedRouter(names)
    assert ours.home("t7") is None
    flights = [ours.route(f"t{i % 20}") for i in range(100)]
    assert [flight.worker for flight in flights] == [plain.route(f"t{i % 20}") for i in range(100)]
    assert ours.home("t7") == plain.home("t7")
    with pytest.raises(ValueError, match="virtual_nodes is 64, which is for a hash ring"):
        SharedRouter(["w0"], virtual_nodes=64, router="sticky-bounded")


def test_a_request_ends_once() -> None:
    router = SharedRouter(["w0"])
    first, second = router.route("a"), router.route("a")
    for _ in range(3):
        first.end()
    assert router.loads() == {"w0": 1}
    second.end()
    assert router.loads() == {"w0": 0}


def test_a_forgotten_request_ends_with_the_garbage_collection() -> None:
    router = SharedRouter(["w0"])
    cycle: list[object] = [router.route("a")]
    cycle.append(cycle)
    assert router.loads() == {"w0": 1}
    del cycle
    gc.collect()
    assert router.loads() == {"w0": 0}


def test_a_garbage_collection_inside_the_lock_does_not_lock_it_again() -> None:
    router = SharedRouter(["w0"])
    flight: Flight | None = router.route("a")
    with router._lock:
        flight = None  # ends here, in the thread that holds the lock
    assert flight is None
    assert router.loads() == {"w0": 0}


def test_one_request_ended_by_many_threads_at_once_ends_once() -> None:
    router = SharedRouter(["w0"])
    kept = router.route("kept")
    for _ in range(50):
        flight = router.route("a")
        start = threading.Barrier(4)

        def end(flight: Flight = flight, start: threading.Barrier = start) -> None:
            start.wait()
            flight.end()

        threads = [threading.Thread(target=end) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert router.loads() == {"w0": 1}
    kept.end()
    assert router.loads() == {"w0": 0}


def test_threads_that_route_and_end_at_once_leave_nothing() -> None:
    router = SharedRouter([f"w{i}" for i in range(5)])
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        mine: list[Flight] = []
        try:
            for _ in range(400):
                if mine and chance.random() < 0.5:
                    mine.pop(chance.randrange(len(mine))).end()
                else:
                    mine.append(router.route(f"t{chance.randrange(20)}"))
        except BaseException as error:
            errors.append(error)
        for flight in mine:
            flight.end()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert set(router.loads().values()) == {0}


def test_a_request_that_another_worker_has_counts_there() -> None:
    router = SharedRouter(["w0", "w1"])
    flight = router.route("a", exclude=["w1"])
    flight.moved("w1")
    assert (flight.worker, router.loads()) == ("w1", {"w0": 0, "w1": 1})
    with pytest.raises(LookupError):
        flight.moved("w2")
    assert (flight.worker, router.loads()) == ("w1", {"w0": 0, "w1": 1})
    flight.end()
    flight.moved("w0")
    flight.end()
    assert router.loads() == {"w0": 0, "w1": 0}


def test_a_request_that_its_turn_counts_changes_only_its_name() -> None:
    released: list[str] = []
    flight = Flight("w0", released.append)
    flight.moved("w1")
    flight.end()
    assert (flight.worker, released) == ("w1", ["w0"])


def test_workers_join_and_leave_while_requests_are_in_flight() -> None:
    router = SharedRouter(["w0"])
    first = router.route("a")
    router.add_worker("w1")
    router.remove_worker("w0")
    assert router.route("a").worker == "w1"
    first.end()
    assert router.workers() == ["w1"]
    with pytest.raises(LookupError):
        router.remove_worker("w0")
