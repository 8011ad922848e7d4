"""The page and its charts."""

import re
from itertools import pairwise

import pytest
from pages import assert_well_formed
from simulated import small_model, trajectory

from coresched.lab.comparison import COLUMNS, Comparison, as_json, compare, table_rows
from coresched.lab.ladder import Choices, mechanism_ladder
from coresched.lab.report.page import comparison_page
from coresched.lab.report.svg import Line, line_chart, ticks
from coresched.lab.units import TimeUnit, count_text, percent_text, saved_text


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    batch = [trajectory(f"<t{number}>", [(20, 3.0, 30)] * 4 + [(20, None, 0)]) for number in range(20)]
    rungs = mechanism_ladder(batch, small_model(), Choices(workers=2, environment_concurrency=2))
    return compare(batch, small_model(), rungs, title="A <title>", workload="twenty & more")


def test_page_is_well_formed_and_escapes_what_it_shows(comparison: Comparison) -> None:
    page = comparison_page(comparison)
    assert_well_formed(page)
    assert "A &lt;title&gt;" in page
    assert "twenty &amp; more" in page


def test_page_shows_every_run_and_each_workers_load(comparison: Comparison) -> None:
    page = comparison_page(comparison)
    for run in comparison.runs:
        assert page.count(run.settings.name) >= 4
    assert page.count("<svg") == 4
    assert "worker 0" in page
    assert "worker 1" in page


def test_rows_and_json_tell_the_same(comparison: Comparison) -> None:
    rows = table_rows(comparison)
    data = as_json(comparison)
    assert [row[0] for row in rows] == [run["name"] for run in data["runs"]]
    assert all(len(row) == len(COLUMNS) for row in rows)
    first, last = data["runs"][0], data["runs"][-1]
    assert first["name"] == "baseline"
    assert last["name"] == "coordinated"
    for run in data["runs"]:
        assert run["makespan_s"] >= run["lower_bound_s"] > 0
        assert set(run["tail_s"]) == {"5", "10"}
    assert first["settings"]["sample_concurrency"] == 2
    assert last["settings"]["worker_policy"] == "routing-prefix"


def test_each_rung_keeps_what_the_one_before_added(comparison: Comparison) -> None:
    settings = [run.settings for run in comparison.runs]
    fields = ("sample_concurrency", "state_ratio", "routing", "worker_policy", "environment_policy")
    changed = [
        {field for field in fields if getattr(before, field) != getattr(after, field)}
        for before, after in pairwise(settings)
    ]
    assert changed == [
        {"sample_concurrency"},
        {"state_ratio"},  # the whole batch was admitted before
        {"routing"},
        {"worker_policy"},
        {"environment_policy"},
    ]


def test_chart_scales_to_its_axes() -> None:
    chart = line_chart(
        [Line("a", [(0.0, 0.0), (10.0, 1.0)], "first")],
        x_label="t",
        y_label="v",
        x_max=10,
        y_max=1,
        percent=True,
    )
    (points,) = re.findall(r'points="([^"]*)"', chart)
    (x0, y0), (x1, y1) = (tuple(map(float, point.split(","))) for point in points.split())
    assert x0 < x1
    assert y0 > y1
    assert "100%" in chart


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (10, [0, 2, 4, 6, 8, 10]),
        (1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (67, [0, 20, 40, 60]),
        (0, [0, 1]),
        (3, [0, 1, 2, 3]),
    ],
)
def test_ticks_are_round(most: float, expected: list[float]) -> None:
    assert ticks(most) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("largest", "name", "text"),
    [(100, "s", "100.0"), (600, "min", "10.0"), (200_000, "h", "55.6"), (170_000, "min", "2,833")],
)
def test_time_unit_fits_the_largest(largest: float, name: str, text: str) -> None:
    unit = TimeUnit(largest)
    assert unit.name == name
    assert unit.text(largest) == text


def test_number_texts() -> None:
    assert [count_text(count) for count in (0, 999, 1000, 45_678, 999_900, 7_070_000, 2e9)] == [
        "0",
        "999",
        "1k",
        "45.7k",
        "1M",
        "7.07M",
        "2G",
    ]
    assert percent_text(None) == "-"
    assert percent_text(0.1234) == "12.3 %"
    assert percent_text(-0.0004) == "0.0 %"
    assert saved_text(50, 100) == "50.0 %"
    assert saved_text(100.01, 100) == "0.0 %"
    assert saved_text(130, 100) == "-30.0 %"
