"""Which trajectories a pool can resume, against the pool itself; and whom the guard holds back and spares."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from block_pool import Path, Request, StatePool
from coresched_vllm.blocks import Groups
from coresched_vllm.ordering import label_of
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


def test_a_cold_trajectory_waits_where_it_would_evict_one_that_comes_back() -> None:
    engine = Engine(size=5, most_running=3)
    for label in "abc":  # each comes back after a gap, so the last two are expected to
        engine.turn(label, (ord(label), 1, 2))
    engine.turn("a", (ord("a"), 1, 2, 3))
    running = engine.submit("a", (ord("a"), 1, 2, 3, 4))
    engine.before()
    engine.run(1)
    engine.submit("new", (7, 8, 9))
    engine.submit("b", (ord("b"), 1, 2, 3))
    assert engine.before() == 1  # c is expected; two blocks for the new one are not there beside it
    assert [label_of(request) for request in engine.waiting] == ["b", "new"]
    assert engine.order.counts().held_back == 1
    engine.run(1)
    for request in engine.pool.running[:]:
        engine.finish(request)
    assert running not in engine.pool.running
    assert engine.before() == 0  # nothing runs


def test_a_trajectory_that_is_expected_is_spared_and_one_that_is_not_is_evicted() -> None:
    engine = Engine(size=4)
    engine.turn("over", (1, 2, 3))
    for _ in range(3):
        engine.turn("b", (4, 5, *range(engine.started)))
    engine.submit("b", (4, 5, *range(engine.started)))  # waits, so it is live
    engine.before()
    blocks = engine.pool.free_block_queue.blocks
    keys = [block.block_hash[1] for block in blocks if block.block_hash is not None]
    assert keys.index((1, 2)) < keys.index(engine.resumed_at["b"])
