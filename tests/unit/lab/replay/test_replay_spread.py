"""Medians, spread and paired ratios of repeated runs; the order of runs."""

import dataclasses
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_folders import EVENTS_OF_TWO

from coresched.lab.replay.plan import ReplaySettings
from coresched.lab.replay.series import Series, run_name
from coresched.lab.replay.spread import Repeated, Spread, spread_of
from coresched.lab.replay.spread_table import spread_heads, spread_rows, verdicts
from coresched.lab.replay.summary import ReplayMetrics, measure
from coresched.lab.units import TimeUnit

METRICS = measure(EVENTS_OF_TWO, samples=2, endpoints=["w0", "w1"])


def lasting(makespan_s: float) -> ReplayMetrics:
    return dataclasses.replace(METRICS, makespan_s=makespan_s)


def runs(name: str, makespans: dict[int, float]) -> Repeated:
    return Repeated(
        name,
        {f"{name}-{number}": "completed" for number in makespans},
        {number: lasting(seconds) for number, seconds in makespans.items()},
    )


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_spread_is_of_all_values(values: list[float]) -> None:
    assert spread_of(values) == Spread(median(values), min(values), max(values), len(values))


def test_ratios_are_of_runs_of_one_round() -> None:
    # Both grow threefold from round to round, as on a machine that slows down: half is half in each.
    first = runs("first", {1: 10.0, 2: 30.0, 3: 90.0})
    second = runs("second", {3: 45.0, 1: 5.0})
    assert second.over(first)["makespan_s"] == Spread(0.5, 0.5, 0.5, 2)
    assert second.spreads()["makespan_s"] == Spread(25.0, 5.0, 45.0, 2)
    assert first.spreads()["tail_5_s"].runs == 3


def test_what_is_zero_or_unknown_has_no_ratio() -> None:
    first = Repeated("a", {}, {1: dataclasses.replace(METRICS, migrations=0, cache_reuse=None)})
    second = Repeated("b", {}, {1: METRICS})
    ratios = second.over(first)
    assert "migrations" not in ratios
    assert "cache_reuse" not in ratios
    assert "cache_reuse" not in first.spreads()
    assert "cache_reuse" in second.spreads()


def test_the_table_has_each_metric_for_each_configuration() -> None:
    groups = [runs("stock", {1: 10.0, 2: 12.0}), runs("other", {1: 5.0, 2: 9.0}), runs("none", {})]
    rows = list(spread_rows(groups, TimeUnit(12.0)))
    assert rows[:4] == [
        ("makespan (s)", "", "", "", ""),
        ("  stock", "11.0", "10.0 to 12.0", "", ""),
        ("  other", "7.0", "5.0 to 9.0", "0.625", "0.500 to 0.750"),
        ("  none", "-", "", "-", ""),
    ]
    assert spread_heads(groups) == ("", "median", "min to max", "over stock", "min to max")
    assert list(verdicts(groups, TimeUnit(12.0))) == [
        "other took 0.625 of the time of stock (0.500 to 0.750 in 2 rounds).",
        "No run of none came to its end.",
    ]
    assert list(verdicts(groups[:1], TimeUnit(12.0))) == ["stock took 11.0 s in the median."]


@pytest.mark.parametrize(
    ("alternate", "order"),
    [
        (False, ["a-1", "a-2", "a-3", "b-1", "b-2", "b-3"]),
        (True, ["a-1", "b-1", "b-2", "a-2", "a-3", "b-3"]),
    ],
)
def test_configurations_take_turns_and_every_second_round_is_backwards(
    alternate: bool, order: list[str]
) -> None:
    settings = ReplaySettings(sample_concurrency=1)
    series = Series({"a": settings, "b": settings}, 3, alternate, True, "digest")
    assert [run_name(place) for place in series.places()] == order
