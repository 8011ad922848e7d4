"""RequestImbalance against beta computed from the definition, interval by interval, in exact fractions."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.core.imbalance import RequestImbalance


def deviation(loads: list[int]) -> Fraction | None:
    """d by its definition; None outside of J."""
    workers, total = len(loads), sum(loads)
    if workers < 2 or total < 2:
        return None
    mean = Fraction(total, workers)
    return sum(abs(load - mean) for load in loads) / (2 * total * (1 - Fraction(1, workers)))


# A request begins or ends on a worker, or workers come and go; each after some quarters of a second.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["began", "began", "ended", "replace"]),
        st.integers(0, 10),
        st.lists(st.integers(0, 9), max_size=6),
        st.integers(0, 40),
    ),
    max_size=60,
)


@given(st.lists(st.integers(0, 9), max_size=6), STEPS)
def test_the_integrals_are_those_of_the_definition(
    loads: list[int], steps: list[tuple[str, int, list[int], int]]
) -> None:
    loads = list(loads)
    now = 100.0
    followed = RequestImbalance(loads, now)
    over, busy = Fraction(0), Fraction(0)
    for what, place, fresh, quarters in steps:
        held = deviation(loads)
        if held is not None:
            over += held * Fraction(quarters, 4)
            busy += Fraction(quarters, 4)
        now += quarters / 4
        if what == "replace":
            loads = list(fresh)
            followed.replace(loads, now)
        elif loads:
            worker = place % len(loads)
            if what == "began":
                followed.began(loads[worker], now)
                loads[worker] += 1
            elif loads[worker]:
                followed.ended(loads[worker], now)
                loads[worker] -= 1
        expected = deviation(loads)
        assert followed.present == (None if expected is None else pytest.approx(float(expected), abs=1e-12))
        got_over, got_busy = followed.integrals(now)
        assert got_busy == float(busy)
        assert got_over == pytest.approx(float(over), abs=1e-9)


def test_two_workers_have_the_simple_form() -> None:
    followed = RequestImbalance([3, 1])
    assert followed.present == 0.5
    followed.began(1, 4.0)
    assert followed.present == pytest.approx(1 / 5)
    assert followed.integrals(9.0) == (pytest.approx(4 * 0.5 + 5 / 5), 9.0)


def test_time_with_one_request_or_one_worker_does_not_count() -> None:
    followed = RequestImbalance([1, 0])
    followed.ended(1, 5.0)
    followed.replace([7], 8.0)
    assert followed.present is None
    assert followed.integrals(20.0) == (0.0, 0.0)


def test_a_load_that_no_worker_has_is_refused_and_changes_nothing() -> None:
    followed = RequestImbalance([2, 2])
    for step, load in ((followed.began, 3), (followed.began, -1), (followed.ended, 0), (followed.ended, 1)):
        with pytest.raises(LookupError, match="load must be that of a worker"):
            step(load, 1.0)
    with pytest.raises(ValueError, match="at least 0"):
        followed.replace([1, -1], 1.0)
    assert (followed.present, followed.integrals(2.0)) == (0.0, (0.0, 2.0))
