"""Which states go to the head of vLLM's free queue: against a twin that keeps no index, and case by case."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from block_pool import Block, Path, Request, StatePool
from coresched_vllm.blocks import Groups
from coresched_vllm.retention import StateRetention
from hypothesis import given
from hypothesis import strategies as st


def resumed_at(hits: list[Block]) -> int:
    return hits[0].block_hash_num_tokens or 0 if hits else 0


class Engine:
    """Trajectories on a pool of ``size`` blocks; the retention is told as a scheduler tells it."""

    def __init__(self, size: int = 6, groups: int = 1) -> None:
        self.pool = StatePool(size, groups)
        self.groups = Groups(self.pool.kv_cache_manager)
        self.retention = StateRetention(self.groups, lambda key: key[1], 1)
        self.waiting: set[str | None] = set()
        self.started = 0

    def start(self, label: str | None, tokens: Path, junction: int = 0) -> Request:
        self.started += 1
        request = Request(f"r{self.started}", label, tokens, len(tokens), shared_prefix_boundary=junction)
        hits, _ = self.pool.start(request)
        self.observe([request], {request.request_id: len(tokens) - resumed_at(hits)})
        return request

    def observe(self, admitted: list[Request], scheduled: dict[str, int]) -> None:
        self.retention.observe(self.pool.running, admitted, scheduled, lambda request: request.label)

    def reply(self, request: Request, tokens: Path) -> None:
        self.pool.reply(request, tokens)
        self.observe([], {request.request_id: 1})

    def demote(self) -> list[Path]:
        """The paths of the states that it moved, the last one first."""
        before = self.retention.demoted
        self.retention.demote(lambda: self.waiting)
        moved = self.pool.free_block_queue.blocks[: self.retention.demoted - before]
        return [block.block_hash[1] for block in moved]

    def turn(self, label: str | None, tokens: Path, junction: int = 0) -> list[Path]:
        """One turn from its start to its end, and what was demoted meanwhile."""
        request = self.start(label, tokens, junction)
        self.pool.release(request, but_last=True)
        demoted = self.demote()
        self.pool.finish(request)
        self.retention.forget([request.request_id])
        return demoted + self.demote()


def test_the_state_that_a_turn_was_resumed_from_goes_first() -> None:
    engine = Engine()
    assert engine.turn("a", (1, 2, 3)) == []
    assert engine.turn("a", (1, 2, 3, 4, 5)) == [(1, 2)]
    assert engine.pool.free_block_queue.blocks[0].block_hash == (0, (1, 2))
    assert engine.turn("a", (1, 2, 3, 4, 5, 6)) == [(1, 2, 3, 4)]


def test_each_group_has_a_state_of_its_own() -> None:
    engine = Engine(size=9, groups=3)
    engine.turn("a", (1, 2, 3))
    assert engine.turn("a", (1, 2, 3, 4, 5)) == [(1, 2)] * 3
    assert engine.turn("a", (1, 2, 3, 4, 5, 6)) == [(1, 2, 3, 4)] * 3


def test_a_state_in_use_waits_until_it_is_given_back() -> None:
    engine = Engine()
    engine.turn("a", (1, 2, 3))
    request = engine.start("a", (1, 2, 3, 4, 5))
    assert engine.demote() == []
    engine.pool.release(request, but_last=True)
    assert engine.demote() == [(1, 2)]


def test_several_turns_may_resume_from_one_state() -> None:
    engine = Engine()
    engine.turn("a", (1, 2, 3))
    assert engine.turn("a", (1, 2, 4)) == []  # no newer one: it ends within the same block
    assert engine.turn("a", (1, 2, 4, 5)) == [(1, 2)]


def test_a_state_that_another_trajectory_or_an_unlabelled_request_hit_stays() -> None:
    for other in ("b", None):
        engine = Engine()
        engine.turn("a", (1, 2, 3))
        engine.turn(other, (1, 2, 9))
        assert engine.turn("a", (1, 2, 3, 4)) == []


def test_a_state_that_two_trajectories_made_stays() -> None:
    engine = Engine()
    first = engine.start("a", (1, 2, 3))
    engine.pool.blocks[1].block_hash = None  # not found by the other, as one made in the same pass is not
    second = engine.start("b", (1, 2, 3))
    engine.pool.blocks[1].block_hash = (0, (1, 2))
    engine.pool.finish(first)
    engine.pool.finish(second)
    assert engine.turn("a", (1, 2, 3, 4, 5)) == []


def test_a_state_where_vllm_saw_prefixes_part_stays() -> None:
    engine = Engine()
    engine.turn("a", (1, 2, 3), junction=2)
    assert engine.turn("a", (1, 2, 3, 4)) == []


def test_a_state_stays_while_a_request_of_its_trajectory_waits_and_if_that_resumes_from_it() -> None:
    engine = Engine()
    engine.turn("a", (1, 2, 3))
    engine.waiting = {"a"}
    assert engine.turn("a", (1, 2, 3, 4)) == []
    engine.waiting = set()
    assert engine.turn("a", (1, 2, 7, 8)) == []  # the other branch: it begins at the same state
    assert engine.turn("a", (1, 2, 3, 4, 5)) == [(1, 2, 3)]


def test_branches_do_not_supersede_each_other() -> None:
    engine = Engine()
    engine.turn("a", (1, 2, 3))
    engine.turn("a", (5, 6, 7, 8, 9))
    assert engine.turn("a", (1, 2, 3, 4)) == [(1, 2)]


def test_a_block_that_was_evicted_and_given_to_another_is_left_alone() -> None:
    engine = Engine(size=1)
    engine.turn("a", (1, 2, 3))
    engine.turn("b", (7, 8, 9))  # in the same block
    assert engine.turn("a", (1, 2, 3, 4)) == []
    assert engine.turn("b", (7, 8, 9, 9, 9)) == []


def test_a_state_that_another_trajectory_made_again_in_its_block_stays() -> None:
    engine = Engine(size=2)
    engine.turn("a", (1, 2, 3))
    engine.pool.empty()
    engine.pool.free_block_queue.blocks.reverse()
    engine.turn("b", (1, 2, 3))
    assert engine.turn("a", (1, 2, 3, 4)) == []


def test_a_superseded_state_that_was_evicted_and_made_again_in_its_block_is_the_newest() -> None:
    engine = Engine(size=2)
    engine.turn("a", (1, 2, 3))
    request = engine.start("a", (1, 2, 3, 4))
    state = engine.pool.blocks[1]
    assert state.block_hash == (0, (1, 2))
    engine.pool.release(request, but_last=True)
    state.block_hash = None  # evicted, with the newer one, before the next pass
    engine.pool.finish(request)
    engine.pool.blocks[2].block_hash = None
    engine.pool.free_block_queue.blocks.sort(key=lambda block: block.block_id)
    assert engine.turn("a", (1, 2, 3)) == []
    assert state.block_hash == (0, (1, 2))


def test_states_behind_a_prompt_supersede_only_such_states() -> None:
    engine = Engine()
    request = engine.start("a", (1, 2, 3))
    engine.reply(request, (4,))
    engine.pool.release(request, but_last=True)
    assert engine.demote() == []  # the next prompt may come without the reply
    engine.reply(request, (5,))
    engine.pool.release(request, but_last=True)
    assert engine.demote() == [(1, 2, 3, 4)]
    engine.pool.finish(request)
    assert set(engine.turn("a", (1, 2, 3, 4, 5, 6, 7))) == {(1, 2), (1, 2, 3, 4, 5)}


def test_an_emptied_cache_has_nothing_to_demote() -> None:
    engine = Engine()
    engine.turn("a", (1, 2, 3))
    engine.turn("a", (1, 2, 3, 4))
    engine.pool.empty()
    engine.turn("a", (1, 2, 3, 4, 5, 6))
    assert engine.turn("a", (1, 2, 3, 4, 5, 6, 7)) == [(1, 2, 3, 4, 5)]


def test_no_more_is_remembered_than_blocks_and_running_requests() -> None:
    engine = Engine(size=3)
    for number in range(50):
        engine.turn(f"t{number}", (number, 1, 2))
    retention: Any = engine.retention
    assert len(retention._states) == len(retention._of_label) == 3
    assert not retention._seen
    assert not retention._superseded


@dataclass
class Record:
    block: Block
    key: Any
    tokens: int
    label: str
    in_reply: bool
    shared: bool
    superseded: bool = False


class Twin:
    """The rules of StateRetention as a list that is searched from end to end."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def of(self, block: Block) -> Record | None:
        return next((each for each in self.records if each.block is block), None)

    def hit(self, block: Block, label: str | None) -> None:
        known = self.of(block)
        if known is not None and known.key == block.block_hash:
            known.shared = known.shared or known.label != label or known.superseded
        elif label is not None:
            key = block.block_hash
            self.add(Record(block, key, block.block_hash_num_tokens or 0, label, False, True))

    def made(self, block: Block, request: Request) -> None:
        key, tokens = block.block_hash, block.block_hash_num_tokens or 0
        known = self.of(block)
        if known is not None and known.key == key:
            known.shared = known.shared or known.label != request.label
            known.superseded = False
            return
        others = [each for each in self.records if each.key == key and each.label != request.label]
        for each in others:
            each.shared = True
        if request.label is None:
            return
        in_reply = tokens > request.num_prompt_tokens
        for each in self.records:
            path = each.key[1]
            before = each.key[0] == key[0] and each.tokens < tokens and request.tokens[: len(path)] == path
            if each.label == request.label and before and (each.in_reply or not in_reply):
                each.superseded = True
        shared = bool(others) or tokens == request.shared_prefix_boundary
        self.add(Record(block, key, tokens, request.label, in_reply, shared))

    def add(self, record: Record) -> None:
        self.records = [each for each in self.records if each.block is not record.block]
        self.records.append(record)

    def demoted(self, waiting: set[str | None]) -> set[int]:
        found = set()
        for each in self.records:
            if each.superseded and (each.block.block_hash != each.key or each.shared):
                each.superseded = False
            elif each.superseded and not each.block.ref_cnt and each.label not in waiting:
                found.add(each.block.block_id)
        self.records = [each for each in self.records if each.block.block_id not in found]
        return found


LABELS = st.sampled_from(["a", "b", None])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), LABELS, st.integers(0, 4), st.lists(st.integers(0, 1), max_size=3)),
        st.tuples(st.just("reply"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.just("release"), st.integers(0, 3)),
        st.tuples(st.just("finish"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.sets(LABELS)),
        st.tuples(st.just("empty")),
    ),
    max_size=40,
)


@given(STEPS, st.integers(2, 9), st.integers(1, 3))
def test_it_demotes_what_its_twin_does(steps: list[Any], size: int, groups: int) -> None:
    engine, twin = Engine(size, groups), Twin()
    pool, contexts = engine.pool, {"a": (0, 0), "b": (0, 0), None: (0, 0)}
    for step, *rest in steps:
        choice = step in ("reply", "release", "finish") and pool.running
        running = pool.running[rest[0] % len(pool.running)] if choice else None
        if step == "start":
            label, rewound, tokens = rest
            context = contexts[label]
            contexts[label] = (*context[: max(2, len(context) - rewound)], *tokens)
            engine.started += 1
            request = Request(f"r{engine.started}", label, contexts[label], len(contexts[label]))
            hits, made = pool.start(request)
            for block in hits:
                twin.hit(block, label)
            for block in made:
                twin.made(block, request)
            engine.observe([request], {request.request_id: len(request.tokens) - resumed_at(hits)})
        elif step == "wait":
            engine.waiting = rest[0]
        elif step == "empty":
            pool.empty()
        elif running is None:
            continue
        elif step == "reply":
            for block in pool.reply(running, (rest[1],)):
                twin.made(block, running)
            engine.observe([], {running.request_id: 1})
        elif step == "release":
            pool.release(running, but_last=True)
        else:
            pool.finish(running)
            contexts[running.label] = running.tokens
            engine.retention.forget([running.request_id])
        before = pool.free_block_queue.blocks[:]
        expected = twin.demoted(engine.waiting)
        demoted = engine.retention.demoted
        engine.demote()
        count = engine.retention.demoted - demoted
        moved = pool.free_block_queue.blocks
        assert {block.block_id for block in moved[:count]} == expected
        assert moved[count:] == [block for block in before if block.block_id not in expected]


def test_groups_that_are_not_of_the_pools_prefix_cache_are_left_out() -> None:
    pool = StatePool(4, groups=3)
    pool.tables[0].block_pool = StatePool(1)
    pool.tables[2].kv_cache_spec = SimpleNamespace(prefix_cacheable=False)
    assert [group.number for group in Groups(pool.kv_cache_manager).all] == [1]
