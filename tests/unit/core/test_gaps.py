"""Which idle trajectories are expected back: hand-computed, held by the compiled class and its twin alike."""

import doctest
from typing import Any

import pytest

import coresched.core.gaps
from coresched.core import TurnGaps
from coresched.core.reference import ReferenceTurnGaps


@pytest.fixture(params=[TurnGaps, ReferenceTurnGaps], ids=["compiled", "twin"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_nothing_is_expected_before_anything_came_back(kind: Any) -> None:
    gaps = kind()
    for label in "abc":
        gaps.ended(label, 0)
    assert gaps.limit == -1
    assert not gaps.expected("a", 0)
    assert not gaps.expected("unknown", 0)


def test_where_all_come_back_the_longest_gap_is_the_limit(kind: Any) -> None:
    gaps = kind()
    for label in "abc":
        gaps.ended(label, 0)
    for label, now in (("a", 3), ("c", 5), ("b", 9)):
        gaps.began(label, now)
    assert gaps.limit == 9
    gaps.ended("d", 10)
    assert gaps.expected("d", 19)
    assert not gaps.expected("d", 20)


def test_the_share_that_ended_ends_the_wait_for_the_others(kind: Any) -> None:
    # Of 10 gaps 1 ends at each of 1 to 5 and 5 never do. S just before 5 is 6/10 and S(inf) 5/10: of those
    # still idle then 1 in 6 comes back, before 4 it is 2 in 7, before 2 4 in 9.
    def limit(least_probability: float) -> int:
        gaps = kind(least_probability)
        for number in range(10):
            gaps.ended(f"t{number}", 0)
        for now in range(1, 6):
            gaps.began(f"t{now}", now)
        return gaps.limit  # type: ignore[no-any-return]

    assert [limit(p) for p in (0.1, 0.16, 0.17, 0.28, 0.29, 0.44, 0.45, 0.5, 0.51)] == [
        5,
        5,
        4,
        4,
        3,
        2,
        1,
        1,
        -1,
    ]


def test_a_gap_that_is_still_short_says_nothing_of_longer_ones(kind: Any) -> None:
    gaps = kind(0.5)
    gaps.ended("a", 0)
    gaps.began("a", 8)
    for number in range(50):
        gaps.ended(f"young {number}", 8)
    # Counted as if they had ended, these would make the one that came back an exception.
    assert gaps.limit == 8
    assert gaps.expected("young 7", 16)


def test_one_turn_trajectories_are_not_waited_for(kind: Any) -> None:
    gaps = kind()
    gaps.ended("multi", 0)
    gaps.began("multi", 5)
    for number in range(200):
        gaps.ended(f"single {number}", 5 + number)
    assert gaps.limit == -1
    assert not gaps.expected("single 199", 205)


def test_a_later_turn_of_the_same_trajectory_begins_its_gap_anew(kind: Any) -> None:
    gaps = kind()
    gaps.ended("a", 0)
    gaps.ended("a", 6)  # two of its requests ran at once
    gaps.began("a", 10)
    gaps.began("a", 11)
    assert gaps.limit == 4
    assert not gaps.expected("a", 11)


def test_the_window_forgets_old_gaps(kind: Any) -> None:
    gaps = kind(0.25, window=4)
    for now in range(0, 400, 100):
        gaps.ended("slow", now)
        gaps.began("slow", now + 90)
    assert gaps.limit == 90
    for now in range(400, 440, 10):
        gaps.ended("quick", now)
        gaps.began("quick", now + 3)
    assert gaps.limit == 3
    gaps.ended("forgotten", 500)
    for number in range(4):
        gaps.ended(f"t{number}", 501)
    gaps.began("forgotten", 502)
    assert not gaps.expected("forgotten", 502)
    assert gaps.expected("t3", 502) == (gaps.limit >= 1)


def test_time_must_not_fall(kind: Any) -> None:
    gaps = kind()
    gaps.ended("a", 5)
    for call in (gaps.ended, gaps.began, gaps.expected):
        with pytest.raises(ValueError, match="now must not fall, got 4 after 5"):
            call("a", 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0.0,), ValueError, "least_probability must be above 0 and at most 1, got 0.0"),
        ((1.5,), ValueError, "least_probability must be above 0 and at most 1, got 1.5"),
        ((float("nan"),), ValueError, "least_probability must be above 0 and at most 1, got nan"),
        (("half",), TypeError, "least_probability must be a number, got 'half'"),
        ((0.5, 0), ValueError, "window must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        TurnGaps(*arguments)


@pytest.mark.parametrize("label", ["", 7])
def test_what_is_no_label_is_refused(kind: Any, label: Any) -> None:
    for call in (kind().ended, kind().began):
        with pytest.raises((TypeError, ValueError), match="label must"):
            call(label, 0)


def test_examples() -> None:
    results = doctest.testmod(coresched.core.gaps)
    assert (results.failed, results.attempted > 0) == (0, True)
