"""When capacity moves between the KV and the state pool: here 6000 KV tokens and 60 slots of 100."""

import pytest
from simulated import outcome_of, settings, small_model, trajectory

from coresched.lab.simulator.memory import split_memory
from coresched.lab.simulator.settings import PoolPolicy
from coresched.lab.simulator.twin.pools import CachePools
from coresched.lab.simulator.workload import build_workload

SAMPLES = 80


def pools(policy: PoolPolicy = "avmp", page_tokens: int = 1) -> CachePools:
    model = small_model(page_tokens=page_tokens)
    batch = [trajectory(str(number), [(1, None, 0)]) for number in range(SAMPLES)]
    return CachePools(build_workload(batch, page_tokens=page_tokens), split_memory(model, 1.0, policy))


def run(on: CachePools, sample: int, tokens: int) -> None:
    """Start a request that computes all its tokens."""
    assert on.fits(sample, tokens)
    on.start(sample, tokens)
    on.make_room()
    on.grow(sample, tokens)
    on.make_room()


def leave(on: CachePools, sample: int, tokens: int) -> None:
    """The same, and then its idle entry."""
    run(on, sample, tokens)
    on.finish(sample, tokens, tokens)


def test_full_kv_takes_slots_and_evicts_nothing() -> None:
    moving = pools()
    leave(moving, 0, 5_000)
    run(moving, 1, 2_050)
    assert (moving.pages, moving.slot_units, moving.evictions) == (7_100, 4_900, 0)


def test_full_slots_take_kv() -> None:
    moving = pools()
    for sample in range(58):
        leave(moving, sample, 10)
    assert moving.moved_slots == 0
    run(moving, 58, 10)  # 5,800 + 290 of 6,000
    assert (moving.pages, moving.slot_units, moving.evictions) == (5_900, 6_100, 0)


@pytest.mark.parametrize(("idle", "evicts"), [(37, False), (43, True)])
def test_a_pool_gives_only_while_more_than_30_percent_of_it_are_free(idle: int, evicts: bool) -> None:
    moving = pools()
    for sample in range(idle):
        leave(moving, sample, 100)
    run(moving, idle, 6_000 - 100 * idle + 50)
    assert (moving.evictions > 0, moving.moved_slots < 0) == (evicts, not evicts)


def test_kv_keeps_what_running_requests_will_need() -> None:
    moving = pools()
    for sample in range(58):
        leave(moving, sample, 10)
    assert moving.fits(58, 5_950)
    moving.start(58, 5_950)
    moving.make_room()  # 100 tokens of KV would be a slot, but 50 are free of promises
    assert (moving.moved_slots, moving.evictions) == (0, 1)


def test_capacity_moves_so_that_a_request_is_admitted() -> None:
    for policy, fits in (("static", False), ("avmp", True)):
        either = pools(policy)
        either.start(0, 5_000)
        assert either.fits(1, 2_000) == fits
    assert either.pages == 7_000
    assert not either.fits(1, 60_000)


def test_a_lone_request_gets_back_what_slots_have_taken() -> None:
    moving = pools()
    for sample in range(60):
        leave(moving, sample, 10)
    run(moving, 60, 10)
    moving.finish(60, 10, 10)
    assert moving.pages < 6_000
    assert moving.fits(61, 5_999)
    assert moving.pages >= 5_999


def test_memory_is_lost_only_to_whole_pages() -> None:
    moving = pools(page_tokens=64)
    pages = moving.pages
    leave(moving, 0, 5_000)
    run(moving, 1, 2_000)
    slots = -moving.moved_slots
    assert slots > 0
    assert moving.pages == (pages * 64 + slots * 100) // 64


def test_requests_at_once_are_as_many_as_find_slots() -> None:
    model = small_model(prefill_chunk_tokens=8_192)
    batch = [trajectory(f"t{number}", [(200, None, 0)], prompt=20) for number in range(23)]
    makespans = [
        outcome_of(batch, settings(pool_policy=policy, sample_concurrency=40), model).completed_s[-1]
        for policy in ("static", "avmp")
    ]
    assert split_memory(model, 1.0).max_running == 20
    assert makespans[1] < makespans[0]
