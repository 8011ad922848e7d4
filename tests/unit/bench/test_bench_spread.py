import pytest

from bench.spread import Spread, spread_of


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([7.0], Spread(7.0, 7.0, 7.0)),
        ([1.0, 2.0], Spread(1.5, 1.25, 1.75)),
        ([5.0, 1.0, 4.0, 2.0, 3.0], Spread(3.0, 2.0, 4.0)),
        ([4.0, 1.0, 3.0, 2.0], Spread(2.5, 1.75, 3.25)),
        ([1.0, 1.0, 1.0, 100.0, 1.0], Spread(1.0, 1.0, 1.0)),
    ],
)
def test_median_and_quartiles(samples: list[float], expected: Spread) -> None:
    assert spread_of(samples) == expected


def test_no_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one timing"):
        spread_of([])


def test_relative_iqr() -> None:
    assert Spread(4.0, 3.0, 5.0).relative_iqr == 0.5
    assert Spread(0.0, 0.0, 0.0).relative_iqr == 0.0
