"""The three estimators on small cases worked out by hand, and what bisection promises on any profile."""

from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.capacity.balance import PoolBalance
from coresched.capacity.demand import Demand, Footing, Replay
from coresched.capacity.estimate import (
    ORDERS,
    Limit,
    PeakEstimate,
    estimate_kappa,
    estimate_paper,
    estimate_peak,
    peak_range,
    worst_demand,
)
from coresched.capacity.profile import Chain, Stage, WorkloadProfile, shuffled

TOKENS = Footing(
    kv_units=lambda tokens: tokens, shared_units=lambda tokens: tokens, running_units=3, idle_units=1
)


@dataclass(frozen=True)
class TwoPools:
    """KV tokens and state slots apart, as SGLang has them."""

    kv: int
    slots: int
    footing: Footing = TOKENS

    def fits(self, demand: Demand) -> bool:
        return demand.kv_units <= self.kv and demand.state_units <= self.slots

    def limit(self, demand: Demand) -> Limit:
        return "kv" if demand.kv_units > self.kv else "state"


@dataclass(frozen=True)
class OnePool:
    """Both kinds of units from one memory, as in vLLM."""

    units: int
    footing: Footing = TOKENS

    def fits(self, demand: Demand) -> bool:
        return demand.units <= self.units

    def limit(self, demand: Demand) -> Limit:
        return "memory"


def equal_chains(count: int, *stages: tuple[int, float, float]) -> WorkloadProfile:
    return WorkloadProfile((Chain(tuple(Stage(*stage) for stage in stages), None, 0),) * count, True)


TEN_OF_TEN = equal_chains(10, (10, 1, 0))


def test_all_of_it_fits() -> None:
    # 10 x 10 tokens and 10 x 3 slots.
    assert estimate_peak(TEN_OF_TEN, TwoPools(100, 30), 0) == PeakEstimate(
        10, Demand(100, 30, 130, 10), "batch"
    )


def test_nothing_fits() -> None:
    assert estimate_peak(TEN_OF_TEN, TwoPools(9, 30), 0) is None
    assert estimate_peak(TEN_OF_TEN, TwoPools(100, 2), 0) is None
    # 10 tokens and 5 % are 10.5.
    assert estimate_peak(TEN_OF_TEN, TwoPools(10, 30), 0.05) is None


@pytest.mark.parametrize(("kv", "found"), [(10, 1), (19, 1), (20, 2), (69, 6), (70, 7), (79, 7), (99, 9)])
def test_the_kv_pool_limits_to_the_unit(kv: int, found: int) -> None:
    estimate = estimate_peak(TEN_OF_TEN, TwoPools(kv, 30), 0)
    assert estimate == PeakEstimate(found, Demand(10 * found, 3 * found, 13 * found, found), "kv")


@pytest.mark.parametrize(("slots", "found"), [(3, 1), (5, 1), (6, 2), (20, 6), (21, 7), (29, 9)])
def test_the_state_pool_limits_to_the_slot_whatever_the_margin(slots: int, found: int) -> None:
    for margin in (0.0, 0.05, 0.5):
        estimate = estimate_peak(TEN_OF_TEN, TwoPools(1_000, slots), margin)
        assert estimate is not None
        assert (estimate.concurrency, estimate.limit) == (found, "state")


def test_one_memory_for_both_limits() -> None:
    # 13 units a trajectory: 6 x 13 = 78.
    estimate = estimate_peak(TEN_OF_TEN, OnePool(90), 0)
    assert estimate == PeakEstimate(6, Demand(60, 18, 78, 6), "memory")


def test_margin_is_on_top_of_the_demand() -> None:
    # 6 x 10 x 1.05 = 63, 7 x 10 x 1.05 = 73.5: rounded up to 74.
    assert estimate_peak(TEN_OF_TEN, TwoPools(73, 30), 0.05) == PeakEstimate(6, Demand(63, 18, 81, 6), "kv")
    at_the_edge = estimate_peak(TEN_OF_TEN, TwoPools(74, 30), 0.05)
    assert at_the_edge == PeakEstimate(7, Demand(74, 21, 95, 7), "kv")


def test_margin_of_5_percent_is_the_default() -> None:
    assert estimate_peak(TEN_OF_TEN, TwoPools(74, 30)) == estimate_peak(TEN_OF_TEN, TwoPools(74, 30), 0.05)


def test_margin_raises_state_to_what_all_hold_while_running_and_no_further() -> None:
    # Four that wait at once hold 4 slots; half as many again are 6. Four that run hold 12, all there can be.
    waiting = worst_demand(equal_chains(4, (10, 0, 1)), 4, TOKENS, 0.5)
    assert waiting == Demand(kv_units=60, state_units=6, units=66, running=0)
    running = worst_demand(equal_chains(4, (10, 1, 1)), 4, TOKENS, 0.5)
    assert running == Demand(kv_units=60, state_units=12, units=72, running=4)


def test_concurrency_beyond_the_batch_reserves_nothing_more() -> None:
    assert worst_demand(TEN_OF_TEN, 99, TOKENS, 0.5) == worst_demand(TEN_OF_TEN, 10, TOKENS, 0.5)


def test_more_at_once_can_need_less() -> None:
    """Why C* is an edge of what fits and no more: replayed in the order a, b, c, the peak is not monotone."""
    a, b, c = (
        Chain((Stage(1, 1, 0),), None, 0),
        Chain((Stage(1, 2, 0), Stage(10, 2, 0)), None, 0),
        Chain((Stage(5, 2, 0),), None, 0),
    )
    # Two at a time, c begins when a ends, at 1, and still holds 5 when b grows to 10 at 2. Three at a time, c
    # ends at that moment.
    assert [Replay([a, b, c], TOKENS).peak(count).kv_units for count in (1, 2, 3)] == [10, 15, 10]


chains = st.builds(
    lambda stages, shared: Chain(tuple(Stage(*stage) for stage in stages), "g", shared),
    st.lists(st.tuples(st.integers(5, 60), st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(0, 5),
)
profiles = st.builds(
    lambda some: WorkloadProfile(tuple(some), True), st.lists(chains, min_size=1, max_size=12)
)
margins = st.sampled_from([0.0, 0.05, 0.3])
memories = st.integers(1, 500)


@given(profiles, margins, st.integers(1, 14))
def test_worst_demand_covers_every_order(profile: WorkloadProfile, margin: float, concurrency: int) -> None:
    worst = worst_demand(profile, concurrency, TOKENS, margin)
    for order in range(ORDERS):
        demand = Replay(shuffled(profile.chains, order), TOKENS).peak(concurrency)
        assert demand.kv_units * (1 + Fraction(margin)) <= worst.kv_units + Fraction(1, 10**6)
        assert demand.state_units <= worst.state_units
        assert demand.units <= worst.units <= worst.kv_units + worst.state_units
        assert demand.running <= worst.running


@given(profiles, margins, memories, st.integers(1, 40))
def test_c_fits_and_one_more_does_not(profile: WorkloadProfile, margin: float, kv: int, slots: int) -> None:
    pools = TwoPools(kv, slots)
    estimate = estimate_peak(profile, pools, margin)
    if estimate is None:
        assert not pools.fits(worst_demand(profile, 1, TOKENS, margin))
        return
    assert estimate.demand == worst_demand(profile, estimate.concurrency, TOKENS, margin)
    assert pools.fits(estimate.demand)
    if estimate.limit == "batch":
        assert estimate.concurrency == len(profile.chains)
    else:
        more = worst_demand(profile, estimate.concurrency + 1, TOKENS, margin)
        assert not pools.fits(more)
        assert estimate.limit == pools.limit(more)


@given(profiles, margins, memories, st.integers(1, 40), st.integers(0, 200), st.integers(0, 20))
def test_more_memory_never_lowers_c(
    profile: WorkloadProfile, margin: float, kv: int, slots: int, more_kv: int, more_slots: int
) -> None:
    """Though the peak is not monotone in C: where two searches part, the one with more memory goes up."""
    little = estimate_peak(profile, TwoPools(kv, slots), margin)
    much = estimate_peak(profile, TwoPools(kv + more_kv, slots + more_slots), margin)
    if little is not None:
        assert much is not None
        assert much.concurrency >= little.concurrency


@given(profiles, memories, st.integers(0, 200))
def test_more_of_one_memory_never_lowers_c(profile: WorkloadProfile, units: int, more: int) -> None:
    little, much = estimate_peak(profile, OnePool(units)), estimate_peak(profile, OnePool(units + more))
    if little is not None:
        assert much is not None
        assert much.concurrency >= little.concurrency


def test_range_of_a_uniform_profile_is_its_estimate() -> None:
    assert peak_range(TEN_OF_TEN, TwoPools(70, 30), 0) == (7, 7)
    assert peak_range(TEN_OF_TEN, TwoPools(9, 30), 0) == (0, 0)


def test_range_spans_what_other_batches_of_the_kind_would_need() -> None:
    mixed = WorkloadProfile(equal_chains(8, (10, 1, 0)).chains + equal_chains(2, (50, 9, 0)).chains, True)
    pools = TwoPools(150, 300)
    low, high = peak_range(mixed, pools, 0, resamples=20)
    # Only short ones: all 10 fit. Only long ones: 3 do.
    assert 3 <= low < high <= 10
    assert peak_range(mixed, pools, 0, resamples=20) == (low, high)
    few_low, few_high = peak_range(mixed, pools, 0, resamples=5)
    assert low <= few_low <= few_high <= high


def test_range_reaches_zero_when_some_batches_do_not_fit_at_all() -> None:
    mixed = WorkloadProfile(equal_chains(1, (10, 1, 0)).chains + equal_chains(1, (99, 1, 0)).chains, True)
    low, high = peak_range(mixed, TwoPools(50, 30), 0, resamples=20)
    assert (low, high) == (0, 2)


# 76,000 + 6,840 tokens a trajectory: 7,600,000 / 82,840 = 91.7.
BALANCE = PoolBalance(pool_tokens=7_600_000, trajectory_tokens=76_000, state_tokens=6_840)


def test_paper_is_the_balanced_ratio_and_what_fits_at_it() -> None:
    ratio, concurrency = estimate_paper(BALANCE)
    assert ratio == pytest.approx(0.09)
    assert concurrency == 91


def test_kappa_scales_the_context() -> None:
    # Half the context: 38,000 + 6,840 tokens, 7,600,000 / 44,840 = 169.5.
    ratio, concurrency = estimate_kappa(BALANCE, 0.5)
    assert ratio == pytest.approx(0.18)
    assert concurrency == 169
    assert estimate_kappa(BALANCE, 1.0) == estimate_paper(BALANCE)


def test_none_fits_on_paper() -> None:
    assert estimate_paper(PoolBalance(80_000, 76_000, 6_840))[1] == 0
