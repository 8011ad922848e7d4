"""Which trajectories a pool can resume, against the pool itself; and whom the guard holds back and spares."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from block_pool import Path, Request, StatePool
from coresched_engine.ordering import label_of
from coresched_vllm.blocks import Groups
from coresched_vllm.routing_residency import RoutingResidencyOrder
from hypothesis import given
from hypothesis import strategies as st


class Engine:
    """Turns of trajectories on a pool of ``size`` blocks, as a scheduler tells the order of them."""

    def __init__(self, size: int, groups: int = 1, most_running: int = 2) -> None:
        self.pool = StatePool(size, groups)
        self.order = RoutingResidencyOrder(
            Groups(self.pool.kv_cache_manager),
            most_running,
            tokens_a_pass=1,
            prefix_hit=lambda request: 0,
            block_hash=lambda key: key[1],
        )
        self.waiting: list[Any] = []
        self.resumed_at: dict[str | None, Path] = {}
        self.started = 0

    def submit(self, label: str | None, tokens: Path) -> Request:
        self.started += 1
        request: Any = Request(f"r{self.started}", label, tokens, len(tokens))
        request.session_id, request.sampling_params = label, None
        self.waiting.append(request)
        return request

    def before(self) -> int:
        """What comes before a pass: the waiting requests in order, and how many of them must wait."""
        self.order.order(self.waiting)
        return self.order.held_back([], self.waiting, self.pool.running)

    def run(self, count: int) -> list[Request]:
        """Start the first so many requests."""
        admitted, self.waiting = self.waiting[:count], self.waiting[count:]
        scheduled = {}
        for request in admitted:
            hits, made = self.pool.start(request)
            resumed_at = hits[0].block_hash_num_tokens or 0 if hits else 0
            scheduled[request.request_id] = len(request.tokens) - resumed_at
            if hits or made:
                self.resumed_at[request.label] = (made or hits)[0].block_hash[1]
        self.order.admitted(admitted)
        self.order.passed(self.pool.running, admitted, SimpleNamespace(num_scheduled_tokens=scheduled))
        return admitted

    def finish(self, request: Request) -> None:
        self.pool.finish(request)
        self.order.finished([request.request_id])

    def turn(self, label: str | None, tokens: Path) -> None:
        self.submit(label, tokens)
        self.before()
        (request,) = self.run(1)
        self.finish(request)

    def resumable(self) -> set[str | None]:
        """By the pool itself."""
        return {label for label, path in self.resumed_at.items() if label and self.pool.cached(path)}


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["submit", "turn"]),
            st.sampled_from(["a", "b", "c", "d", None]),
            st.lists(st.integers(0, 2), min_size=1, max_size=3),
        ),
        st.tuples(st.just("pass"), st.integers(0, 3)),
        st.tuples(st.just("finish"), st.integers(0, 3)),
        st.tuples(st.just("evict"), st.integers(1, 9)),
        st.tuples(st.just("empty")),
    ),
    max_size=50,
)


@given(STEPS, st.integers(2, 9), st.integers(1, 2))
def test_it_knows_what_the_pool_holds_and_holds_back_only_from_the_end(
    steps: list[Any], size: int, groups: int
) -> None:
    engine = Engine(size, groups)
    contexts: dict[str | None, Path] = {}
    for step, *rest in steps:
        if step in ("submit", "turn"):
            label, tokens = rest
            first = (9,) if label is None else (ord(label), 0)
            contexts[label] = (*contexts.get(label, first), *tokens)
            if step == "submit" or engine.waiting or len(engine.pool.running) == 2:
                engine.submit(label, contexts[label])
            else:
                engine.turn(label, contexts[label])
        elif step == "pass":
            refs = [block.ref_cnt for block in engine.pool.blocks]
            held_back = engine.before()
            order = engine.waiting
            cached = [label_of(request) in engine.resumable() for request in order]
            assert cached == sorted(cached, reverse=True)
            assert not any(cached[len(order) - held_back :])
            assert engine.pool.running or not order or held_back < len(order)
            assert [block.ref_cnt for block in engine.pool.blocks] == refs
            assert len(set(engine.pool.free_block_queue.blocks)) == engine.pool.get_num_free_blocks()
            room = 2 - len(engine.pool.running)
            engine.run(min(rest[0], room, len(order) - held_back))
        elif step == "finish" and engine.pool.running:
            engine.finish(engine.pool.running[rest[0] % len(engine.pool.running)])
        elif step == "evict":
            block = engine.pool.blocks[rest[0] % len(engine.pool.blocks)]
            if not block.ref_cnt:
                engine.pool.evict_blocks({block.block_id})
        elif step == "empty" and not engine.pool.running:
            engine.pool.empty()
            engine.order.cache_emptied()
    engine.before()
    assert engine.order.policy.labels() == engine.resumable()


def test_a_trajectory_is_lost_when_the_pool_hands_its_state_out() -> None:
    engine = Engine(size=2)
    for label in "abc":
        engine.turn(label, (ord(label), 1, 2))
    engine.before()
    assert engine.order.policy.labels() == {"b", "c"}
    assert engine.order.counts().lost == 1


def test_a_trajectory_is_lost_when_vllm_takes_blocks_or_all_out_of_its_cache() -> None:
    engine = Engine(size=3)
    for label in "abc":
        engine.turn(label, (ord(label), 1, 2))
    engine.pool.evict_blocks({2})
    engine.before()
    assert engine.order.policy.labels() == {"a", "c"}
    engine.pool.empty()
    engine.order.cache_emptied()
    assert engine.order.policy.labels() == set()


def returning(engine: Engine, turns: int) -> None:
    """Three trajectories in turn, so that each is expected back after two passes."""
    for turn in range(turns):
        for label in "abc":
            engine.turn(label, (ord(label), *range(turn + 2)))


@pytest.mark.parametrize(("turns", "held_back"), [(3, 1), (1, 0)])
def test_a_cold_request_waits_where_it_would_evict_a_trajectory_that_is_expected_back(
    turns: int, held_back: int
) -> None:
    engine = Engine(size=4)
    returning(engine, turns)
    engine.submit(None, (7, 8, 9))
    engine.before()
    (running,) = engine.run(1)  # nothing ran
    engine.submit("new", (5, 6, 7))
    assert engine.before() == held_back  # b and c hold a block each, one is in use, and it needs two of four
    assert engine.order.counts().held_back == held_back
    engine.finish(running)
    assert engine.before() == 0


def test_a_live_trajectory_is_moved_behind_others_where_there_is_room_for_it() -> None:
    for size, moved in ((3, 1), (2, 0)):
        engine = Engine(size)
        engine.turn("b", (4, 5, 6))
        for number in range(size - 1):
            engine.turn(None, (number, 1, 2))
        (head, *_) = engine.pool.free_block_queue.blocks
        engine.submit("b", (4, 5, 6, 7, 8))
        engine.before()
        assert engine.order.counts().moved_back == moved
        assert engine.pool.free_block_queue.blocks[-1 if moved else 0] is head
        assert engine.order.policy.labels() == {"b"}
