"""Peak demand of small batches, counted by hand."""

import random

import pytest
from simulated import trajectory

from coresched.capacity.demand import Demand, Footing, Replay
from coresched.capacity.profile import Chain, Stage, profile_of, shuffled
from coresched.errors import InputError

TOKENS = Footing(
    kv_units=lambda tokens: tokens, shared_units=lambda tokens: tokens, running_units=3, idle_units=1
)


def chain(*stages: tuple[int, float, float], shared: int = 0, group: str | None = None) -> Chain:
    return Chain(tuple(Stage(*stage) for stage in stages), group, shared)


def test_one_chain_holds_its_largest_context() -> None:
    assert Replay([chain((10, 1, 0), (25, 1, 0))], TOKENS).peak(1) == Demand(25, 3, 28, 1)


def test_waiting_keeps_the_context_but_one_slot() -> None:
    # 0 to 1 runs with 10, 1 to 5 waits with 10, 5 to 6 runs with 20.
    alone = chain((10, 1, 4), (20, 1, 0))
    late = chain((50, 3, 0))
    assert Replay([alone, late], TOKENS).peak(2) == Demand(60, 6, 66, 2)
    assert Replay([alone, late], TOKENS).peak(1) == Demand(50, 3, 53, 1)


def test_the_first_cohort_starts_together_and_the_next_when_one_ends() -> None:
    chains = [chain((10, 2, 0)), chain((20, 1, 0)), chain((40, 1, 0))]
    # 0 to 1: 10 + 20; 1 to 2: 10 + 40.
    assert Replay(chains, TOKENS).peak(2).kv_units == 50
    assert Replay(chains, TOKENS).peak(3).kv_units == 70
    assert Replay(chains, TOKENS).peak(99).kv_units == 70


def test_what_ends_makes_room_for_what_begins() -> None:
    assert Replay([chain((10, 1, 0)), chain((10, 1, 0))], TOKENS).peak(1).kv_units == 10


def test_shared_prefix_is_held_once_a_group_while_anyone_uses_it() -> None:
    together = [chain((100, 1, 0), shared=60, group="a") for _ in range(3)]
    assert Replay(together, TOKENS).peak(3).kv_units == 3 * 40 + 60
    apart = [chain((100, 1, 0), shared=60, group=name) for name in "abc"]
    assert Replay(apart, TOKENS).peak(3).kv_units == 300


def test_units_are_the_engines() -> None:
    pages = Footing(
        kv_units=lambda tokens: -(-tokens // 64),
        shared_units=lambda tokens: tokens // 64,
        running_units=5,
        idle_units=1,
    )
    chains = [chain((65, 1, 2)), chain((64, 5, 0)), chain((1, 5, 0))]
    assert Replay(chains, pages).peak(3) == Demand(4, 15, 19, 3)


def test_profile_uses_seconds_only_when_all_are_recorded() -> None:
    recorded = trajectory("a", [(10, 4.0, 5), (20, None, 0)], prompt=100)
    untimed = profile_of([recorded])
    assert not untimed.timed
    assert untimed.waiting_share == 0
    assert [stage.inference_s for stage in untimed.chains[0].stages] == [10, 20]
    assert [stage.tokens for stage in untimed.chains[0].stages] == [110, 135]


def test_kappa_weighs_contexts_by_the_time_they_last() -> None:
    # 110 tokens for 10 units, 135 for 20: (1100 + 2700) / (30 * 135).
    profile = profile_of([trajectory("a", [(10, 4.0, 5), (20, None, 0)], prompt=100)])
    assert profile.mean_final_tokens == 135
    assert profile.kappa == pytest.approx(3800 / (30 * 135))


def test_scaling_scales_contexts() -> None:
    profile = profile_of(
        [trajectory("a", [(10, 4.0, 5), (20, None, 0)], prompt=100, shared_prefix_tokens=50)]
    ).scaled(1.1)
    assert [stage.tokens for stage in profile.chains[0].stages] == [121, 148]
    assert profile.chains[0].shared_tokens == 55


def test_resampling_draws_from_the_same_chains() -> None:
    profile = profile_of([trajectory(name, [(number + 1, None, 0)]) for number, name in enumerate("abcdef")])
    again = profile.resampled(random.Random(1))
    assert len(again.chains) == 6
    assert set(again.chains) <= set(profile.chains)
    assert again != profile


def test_order_zero_is_the_traces() -> None:
    chains = [chain((number, 1, 0)) for number in range(1, 30)]
    assert shuffled(chains, 0) == chains
    assert shuffled(chains, 1) == shuffled(chains, 1) != chains
    assert sorted(shuffled(chains, 1), key=lambda each: each.final_tokens) == chains


def test_an_empty_workload_is_refused() -> None:
    with pytest.raises(InputError, match="no trajectory"):
        profile_of([])
