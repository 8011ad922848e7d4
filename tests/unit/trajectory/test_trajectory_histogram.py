from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.trajectory.histogram import MAX_BINS, Histogram, linear_histogram, log_histogram


def plain_counts(edges: tuple[float, ...], values: list[float]) -> tuple[int, ...]:
    return tuple(sum(low <= value < high for value in values) for low, high in pairwise(edges))


def check(histogram: Histogram, values: list[float], max_bins: int) -> None:
    assert histogram.counts == plain_counts(histogram.edges, values)
    assert sum(histogram.counts) == len(values)
    assert 1 <= len(histogram.counts) <= max_bins
    assert list(histogram.edges) == sorted(set(histogram.edges))


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_linear_bins_hold_every_value_once(values: list[int]) -> None:
    histogram = linear_histogram(values)
    check(histogram, list(values), MAX_BINS)
    assert histogram.counts[0]
    assert histogram.counts[-1]
    assert len({high - low for low, high in pairwise(histogram.edges)}) == 1


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_log_bins_hold_every_value_once(values: list[float]) -> None:
    histogram = log_histogram(values)
    check(histogram, values, MAX_BINS + 1)
    assert histogram.counts[0]
    assert histogram.counts[-1]


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        ([7], (7, 8)),
        ([1, 14], tuple(range(1, 16))),
        ([18, 145], (10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150)),
        ([3, 290], (0, 20, 40, 60, 80, 100, 120, 140, 160, 180, 200, 220, 240, 260, 280, 300)),
    ],
)
def test_linear_edges_are_round(values: list[int], edges: tuple[int, ...]) -> None:
    assert linear_histogram(values).edges == edges


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        ([0.05, 105.82], (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)),
        ([1.0], (1, 2)),
        ([0.0], (0, 0.001)),
        ([0.0, 0.003], (0, 0.001, 0.002, 0.005)),
        ([0.001, 1e6], (0.001, 0.01, 0.1, 1, 10, 100, 1000, 10_000, 100_000, 1e6, 1e7)),
    ],
)
def test_log_edges_are_round(values: list[float], edges: tuple[float, ...]) -> None:
    assert log_histogram(values).edges == edges
