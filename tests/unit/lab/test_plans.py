"""Where the estimators set a simulated worker."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import small_model, trajectory

from coresched.capacity.demand import Demand
from coresched.capacity.profile import profile_of
from coresched.lab.plans import Point, WorkerPools, by_kappa, by_paper, by_peak, by_requests
from coresched.lab.simulator.memory import SLOT_UNITS, split_memory
from coresched.lab.simulator.model import load_worker_model

# 12,000 tokens for both pools; a slot costs 100, a running request reserves 3.
MODEL = small_model()
# Ten that reach 500 tokens each in one turn of 100.
TEN = profile_of([trajectory(f"{number}", [(100, None, 0)], prompt=400) for number in range(10)])


@given(st.integers(1, 9_999), st.integers(10_000, 10_000_000), st.integers(1, 9_000), st.integers(1, 5))
def test_ratio_makes_exactly_the_slots_and_leaves_the_rest_to_kv(
    slots: int, pool: int, request: int, per_request: int
) -> None:
    model = msgspec.structs.replace(
        load_worker_model(),
        pool_tokens=pool,
        request_state_tokens=request,
        slots_per_request=per_request,
        running_request_slots=1.0,
    )
    pools = WorkerPools(model)
    state_tokens = slots * pools.slot_tokens
    if slots < per_request or state_tokens > 0.9 * pool:
        return
    memory = split_memory(model, pools.ratio(slots))
    assert memory.slot_units == slots * SLOT_UNITS
    assert 0 <= pool - state_tokens - memory.pages * memory.page_tokens <= 2


def test_both_demands_share_the_memory() -> None:
    pools = WorkerPools(MODEL)
    assert pools.slot_tokens == 100
    assert pools.fits(Demand(kv_units=9_000, state_units=30, units=0, running=10))
    assert not pools.fits(Demand(kv_units=9_001, state_units=30, units=0, running=10))
    assert not pools.fits(Demand(kv_units=9_000, state_units=31, units=0, running=10))


def test_no_more_running_than_the_worker_allows() -> None:
    pools = WorkerPools(msgspec.structs.replace(MODEL, max_running_requests=9))
    assert pools.fits(Demand(100, 27, 0, 9))
    assert not pools.fits(Demand(100, 27, 0, 10))


def test_own_tokens_take_whole_pages_and_a_prefix_shares_whole_ones() -> None:
    footing = WorkerPools(msgspec.structs.replace(MODEL, page_tokens=64)).footing
    assert [footing.kv_units(tokens) for tokens in (0, 1, 64, 65)] == [0, 1, 1, 2]
    assert [footing.shared_units(tokens) for tokens in (63, 64, 127, 128)] == [0, 1, 1, 2]


def test_peak_sets_the_slots_outright() -> None:
    # 500 * 1.05 + 300 = 825 tokens each; all ten fit in 12,000: 30 slots, 3,000 over 9,000.
    point = by_peak(TEN, MODEL)
    assert point.concurrency == 10
    assert point.ratio == pytest.approx(3_000 / 9_000)
    # In 6,000, seven: 21 slots, 2,100 over 3,900.
    point = by_peak(TEN, msgspec.structs.replace(MODEL, pool_tokens=6_000))
    assert point.concurrency == 7
    assert point.ratio == pytest.approx(2_100 / 3_900)


def test_peak_refuses_a_worker_that_holds_none() -> None:
    with pytest.raises(ValueError, match="has pool_tokens 800; with the margin not one"):
        by_peak(TEN, msgspec.structs.replace(MODEL, pool_tokens=800))


def test_paper_and_kappa_are_the_balanced_pools() -> None:
    # 500 + 300 tokens each: 15 in 12,000, at 300 over 500. One turn: the context never changes, kappa is 1.
    assert by_paper(TEN, MODEL) == by_kappa(TEN, MODEL) == Point(0.6, 15)
    # 100 tokens for 10, 300 for 30: kappa = (1,000 + 9,000) / (40 * 300).
    growing = profile_of([trajectory("a", [(10, 0.0, 170), (30, None, 0)], prompt=90)])
    assert by_kappa(growing, MODEL) == Point(pytest.approx(300 / 250), 21)
    assert by_paper(growing, MODEL) == Point(1.0, 20)


def test_requests_weigh_a_trajectory_by_its_turns() -> None:
    assert by_requests(TEN, MODEL) == by_paper(TEN, MODEL)
    # Trajectories end with 100 and 300 tokens; the requests have 100, 100, 200 and 300. M is 12,000.
    short = trajectory("a", [(10, None, 0)], prompt=90)
    long = trajectory("b", [(10, 0.0, 90), (10, 0.0, 90), (10, None, 0)], prompt=90)
    assert by_paper(profile_of([short, long]), MODEL) == Point(1.5, 24)
    assert by_requests(profile_of([short, long]), MODEL) == Point(pytest.approx(300 / 175), 25)
