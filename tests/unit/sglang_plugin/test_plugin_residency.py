"""routing-residency on SGLang's queue and cache: what is learned from the cache, and what the guard does."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from coresched_sglang.routing_residency import RoutingResidency
from sglang_cache import Cache, EvictParams, Request, cache_modules


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    with cache_modules():
        yield


class Adder:
    """SGLang's PrefillAdder: admits what its cache has slots for."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine
        self.running_batch = SimpleNamespace(reqs=engine.running)
        self.can_run_list: list[Request] = []

    @property
    def rem_total_tokens(self) -> int:
        return self.engine.cache.kv_free + self.engine.cache.full_evictable_size()

    def add_one_req(self, req: Request) -> bool:
        self.can_run_list.append(req)
        return True


class Engine:
    """SGLang's part of a pass: ``places`` for requests, which run with three slots beside their state."""

    def __init__(self, cache: Cache, places: int = 8, **options: bool) -> None:
        self.cache = cache
        self.places = places
        self.queue: list[Request] = []
        self.running: list[Request] = []
        self.forward_ct = 0
        self.chunked_req = None
        self.max_running_requests = places
        self.ended: dict[str, Request] = {}
        self.ordering = RoutingResidency(cache, self.guarded, **options)
        self.decode(0)

    def decode(self, forwards: int) -> None:
        """Passes without a prefill."""
        self.forward_ct += forwards
        self.ordering.admit(SimpleNamespace(batch_to_run=None), self)

    @staticmethod
    def guarded(adder_class: Any, holds_back: Any) -> Any:
        class Guarded(adder_class):  # type: ignore[misc]
            def add_one_req(self, req: Request) -> bool:
                return not holds_back(self, req) and bool(super().add_one_req(req))

        return Guarded

    def get_prefill_adder_class(self) -> Any:
        return Adder

    def send(self, *requests: Request) -> None:
        for request in requests:
            last = self.ended.get(request.routing_key or "")
            request.last_node = last.last_node if last else None
            if last:
                request.tokens += last.tokens
            self.queue.append(request)

    def order(self) -> str:
        self.ordering.order(self.queue, SimpleNamespace(reqs=self.running))
        return " ".join(request.rid for request in self.queue)

    def step(self) -> str:
        """Order, admit from the head, run one forward; the ids that were admitted."""
        self.order()
        adder = self.get_prefill_adder_class()(self)
        for request in self.queue:
            if len(self.running) + len(adder.can_run_list) >= self.places or not adder.add_one_req(request):
                break
        admitted = adder.can_run_list
        self.queue = [request for request in self.queue if request not in admitted]
        self.running += admitted
        for request in admitted:
            if request.last_node is not None:
                self.cache.lock(request.last_node)
            if self.cache.slots is not None:
                missing = 3 - self.cache.allocator.free
                if missing > 0:
                    self.cache.evict_for_alloc(EvictParams(mamba_num=missing))
                assert self.cache.allocator.free >= 3
                self.cache.allocator.free -= 3
        self.ordering.admit(SimpleNamespace(batch_to_run=SimpleNamespace(reqs=admitted)), self)
        self.decode(1)
        return " ".join(request.rid for request in admitted)

    def finish(self, *requests: Request) -> None:
        for request in requests:
            request.is_finished = True
            self.running.remove(request)
            if request.last_node is not None:
                self.cache.unlock(request.last_node)
            if self.cache.slots is not None:
                self.cache.allocator.free += 3
                if not self.cache.allocator.free:
                    self.cache.evict_for_alloc(EvictParams(mamba_num=1))
            self.cache.checkpoint_into_tree(request, up_to=request.tokens)
            if request.routing_key:
                self.ended[request.routing_key] = request

    def serve(self, *requests: Request) -> None:
        for request in requests:
            self.send(request)
            assert self.step() == request.rid
            self.finish(request)

    def resident(self) -> str:
        self.order()
        return " ".join(sorted(self.ordering._policy.labels()))


def test_trajectories_whose_state_is_cached_go_first_in_order_of_arrival() -> None:
    engine = Engine(Cache())
    engine.serve(Request("a1", "a"), Request("b1", "b"))
    engine.send(Request("c1", "c"), Request("u1"), Request("b2", "b"), Request("a2", "a"))
    assert engine.order() == "b2 a2 c1 u1"


def test_what_the_cache_evicts_is_no_longer_first() -> None:
    engine = Engine(Cache())
    engine.serve(Request("a1", "a"), Request("b1", "b"))
    engine.cache.evict(EvictParams(mamba_num=1))
    engine.send(Request("c1", "c"), Request("a2", "a"), Request("b2", "b"))
    assert engine.order() == "b2 c1 a2"
    engine.cache.evict_for_alloc(EvictParams(mamba_num=1))
    assert engine.order() == "c1 a2 b2"
    assert engine.ordering.counts().lost == 2


def test_an_emptied_cache_holds_nothing_even_where_it_gives_the_same_handles_again() -> None:
    engine = Engine(Cache())
    engine.serve(Request("a1", "a"))
    engine.cache.reset()
    engine.cache.ids = iter([1])  # type: ignore[assignment]
    engine.ended.clear()
    engine.serve(Request("b1", "b"))
    assert engine.resident() == "b"


def test_the_next_turn_moves_the_state_and_one_of_another_label_takes_it_away() -> None:
    engine = Engine(Cache())
    engine.serve(Request("a1", "a"), Request("a2", "a"))
    assert engine.resident() == "a"
    fork = Request("f1", "f")
    engine.send(fork)
    fork.last_node, fork.tokens = engine.ended["a"].last_node, 400
    engine.step()
    engine.finish(fork)
    assert engine.resident() == "f"


def test_a_request_without_label_leaves_nothing_to_a_trajectory() -> None:
    engine = Engine(Cache())
    engine.serve(Request("u1"))
    assert engine.resident() == ""
    assert engine.ordering.counts().unlabelled == 1


def test_without_states_a_trajectory_is_cached_while_half_of_its_kv_is() -> None:
    engine = Engine(Cache(slots=None))
    engine.serve(Request("a1", "a", tokens=300), *(Request(f"a{n}", "a", tokens=100) for n in (2, 3, 4)))
    engine.serve(Request("b1", "b"))

    def lose(node: int) -> None:
        engine.cache._remove(node)
        engine.cache.evict(EvictParams())

    for end in (4, 3, 2):  # 300 of 600 tokens are left then
        lose(end)
        assert engine.resident() == "a b"
    lose(1)
    assert engine.resident() == "b"


def learned(engine: Engine, labels: str, gap: int = 10) -> None:
    """Each trajectory has two turns, ``gap`` forwards apart."""
    for label in labels:
        engine.serve(Request(f"{label}1", label, priority=0))
        engine.decode(gap - 1)
        engine.serve(Request(f"{label}2", label, priority=0))


def test_what_no_live_trajectory_needs_is_evicted_though_it_was_used_last() -> None:
    engine = Engine(Cache(slots=12), places=2)
    learned(engine, "ab")
    live = [Request("l1", "l"), Request("m1", "m")]
    engine.send(*live)
    engine.step()
    engine.finish(*live)
    engine.serve(Request("u1"), Request("u2"), Request("u3"))
    engine.decode(2)
    engine.send(Request("c1", "c"), Request("d1", "d"))
    engine.step()
    assert engine.ordering.counts().states_evicted > 0
    assert {"l", "m"} <= set(engine.resident().split())


def test_a_cold_trajectory_waits_while_it_would_evict_a_live_one_and_a_cached_one_does_not() -> None:
    # Of 12 slots a running request takes S = 5 and each of 3 idle trajectories one: 4 are left.
    engine = Engine(Cache(slots=12), places=2)
    learned(engine, "x")
    for label in "abcd":
        engine.serve(Request(f"{label}1", label))
    runs = Request("a2", "a")
    engine.send(runs)
    assert engine.step() == "a2"
    engine.send(Request("e1", "e"))
    assert engine.step() == ""
    assert engine.ordering.counts().held_back == 1
    engine.send(Request("b2", "b"))
    assert engine.step() == "b2"
    assert [request.rid for request in engine.queue] == ["e1"]


def test_a_priority_before_a_cached_trajectory_is_not_held_back() -> None:
    engine = Engine(Cache(slots=12), places=3, by_priority=True)
    learned(engine, "x")
    for label in "abcd":
        engine.serve(Request(f"{label}1", label, priority=0))
    engine.send(Request("a2", "a", priority=0))
    assert engine.step() == "a2"
    engine.send(
        Request("late", "e", priority=0), Request("first", priority=9), Request("b2", "b", priority=0)
    )
    assert engine.step() == "first b2"
    assert [request.rid for request in engine.queue] == ["late"]


def test_it_starts_when_a_trajectory_does_not_come_back() -> None:
    engine = Engine(Cache(slots=12), places=2)
    learned(engine, "x", gap=10)
    for label in "abcd":
        engine.serve(Request(f"{label}1", label))
    runs = Request("a2", "a")
    engine.send(runs)
    engine.step()
    engine.send(Request("e1", "e"))
    held_back = 0
    while engine.step() == "":
        held_back += 1
        assert held_back < 100
    assert 0 < held_back <= 32
    assert "e1" in [request.rid for request in engine.running]


def test_nothing_is_held_back_while_nothing_runs() -> None:
    engine = Engine(Cache(slots=12), places=2)
    learned(engine, "x")
    for label in "abcdef":
        engine.serve(Request(f"{label}1", label))
    engine.send(Request("g1", "g"), Request("h1", "h"))
    assert engine.step() == "g1"
    assert engine.step() == ""


def test_trajectories_of_one_turn_hold_nothing_back() -> None:
    engine = Engine(Cache(slots=12), places=2)
    for number in range(40):
        engine.send(Request(f"a{number}", f"a{number}"), Request(f"b{number}", f"b{number}"))
        assert engine.step() == f"a{number} b{number}"
        engine.finish(*engine.running)
    assert engine.ordering.counts().held_back == 0


def test_kv_holds_back_too_and_is_made_room_in() -> None:
    engine = Engine(Cache(slots=None, kv_tokens=1000), places=4)
    learned(engine, "x")  # 200 tokens, soon of no live trajectory
    engine.decode(100)
    engine.serve(Request("a1", "a", tokens=300), Request("b1", "b", tokens=300))
    runs = Request("a2", "a", tokens=50)
    engine.send(runs)
    assert engine.step() == "a2"
    engine.send(Request("big", "big", tokens=400))
    assert engine.step() == ""
    engine.queue.clear()
    engine.send(Request("small", "small", tokens=250))
    assert engine.step() == "small"
    assert {"a", "b"} <= set(engine.resident().split())


def test_a_prompt_that_no_pool_takes_is_not_held_back_for_ever() -> None:
    engine = Engine(Cache(slots=None, kv_tokens=1000), places=4)
    engine.send(Request("big", "big", tokens=5000))
    assert engine.step() == "big"


def test_every_rank_decides_alike() -> None:
    ranks = [Engine(Cache(slots=16), places=3) for _ in range(2)]
    for number in range(60):
        for rank in ranks:
            rank.send(Request(f"r{number}", f"t{(number * 7) % 11}"))
        admitted = [rank.step() for rank in ranks]
        assert admitted[0] == admitted[1]
        for rank in ranks:
            if number % 3 and rank.running:
                rank.finish(rank.running[0])
    assert ranks[0].ordering.counts().held_back == ranks[1].ordering.counts().held_back


def test_counts() -> None:
    engine = Engine(Cache())
    engine.serve(Request("a1", "a"), Request("u1"), Request("a2", "a"))
    counts = engine.ordering.counts()
    assert (counts.passes, counts.changes) == (3, 0)
    assert (counts.hits, counts.misses, counts.unlabelled) == (1, 1, 1)
    assert (counts.lost, counts.held_back, counts.states_evicted) == (0, 0, 0)
