"""Returning turns that are held back until a few of them can be prefilled together."""

import pytest
from simulated import outcome_of, settings, small_model, trajectory

from coresched.errors import InputError
from coresched.lab.simulator.returning import HeldReturns


def test_a_group_goes_once_it_is_full_in_the_order_of_arrival() -> None:
    returns = HeldReturns(workers=2, returns_held=3)
    assert returns.arrived(0, 5, 20, returning=True) == []
    assert returns.arrived(1, 6, 20, returning=True) == []
    assert returns.arrived(0, 3, 20, returning=True) == []
    assert returns.arrived(0, 9, 20, returning=True) == [5, 3, 9]


def test_a_first_turn_goes_at_once_and_takes_along_what_is_held() -> None:
    returns = HeldReturns(workers=1, returns_held=3)
    assert returns.arrived(0, 1, 20, returning=False) == [1]
    assert returns.arrived(0, 2, 20, returning=True) == []
    assert returns.arrived(0, 3, 20, returning=False) == [2, 3]


@pytest.mark.parametrize(("in_flight", "released"), [(1, [7]), (2, [7]), (3, [])])
def test_a_turn_is_held_only_where_more_requests_are_at_work(in_flight: int, released: list[int]) -> None:
    assert HeldReturns(workers=1, returns_held=8).arrived(0, 7, in_flight, returning=True) == released


def test_only_the_group_whose_time_is_up_is_released_by_it() -> None:
    returns = HeldReturns(workers=1, returns_held=2)
    returns.arrived(0, 1, 20, returning=True)
    first = returns.opened(0)
    assert first is not None
    returns.arrived(0, 2, 20, returning=True)
    assert returns.opened(0) is None
    returns.arrived(0, 3, 20, returning=True)
    assert returns.overdue(0, first) == []
    second = returns.opened(0)
    assert second is not None
    assert returns.overdue(0, second) == [3]


def test_what_is_held_waits_for_its_time_and_no_longer() -> None:
    """Two trajectories decode for long; a third one's second turn is held."""
    batch = [
        *(trajectory(f"long {n}", [(400, None, 0)]) for n in range(3)),
        trajectory("returns", [(2, 0.5, 5), (2, None, 0)]),
    ]
    now, held, longer = (
        outcome_of(batch, settings(returns_held=most, returns_held_s=seconds), small_model())
        for most, seconds in [(1, 1.0), (8, 1.0), (8, 2.0)]
    )
    assert 0.9 < held.ttft_s - now.ttft_s < 1.1
    assert 1.9 < longer.ttft_s - now.ttft_s < 2.1


def test_a_number_or_time_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="returns_held is 0; it must be from 1"):
        settings(returns_held=0)
    with pytest.raises(InputError, match="returns_held_s is 0; it must be from"):
        settings(returns_held_s=0)
