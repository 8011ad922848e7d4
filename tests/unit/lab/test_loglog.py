import re

import pytest

from coresched.lab.report.loglog import decades, loglog_chart
from coresched.lab.report.svg import Line


def places(svg: str) -> list[tuple[float, float]]:
    points = re.search(r'points="([^"]*)"', svg)
    assert points is not None
    return [(float(x), float(y)) for x, y in (point.split(",") for point in points[1].split())]


def test_a_power_law_is_a_straight_line_and_decades_are_equally_wide() -> None:
    svg = loglog_chart(
        [Line("<ours>", [(1, 2.0), (10, 20.0), (100, 200.0)], "last")], x_label="n", y_label="s"
    )
    (x0, y0), (x1, y1), (x2, y2) = places(svg)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y0 > y1
    assert "&lt;ours&gt;" in svg
    assert svg.count("<circle") == 3


def test_decades_enclose_the_values() -> None:
    assert decades([3.0, 4.0]) == (0, 1)
    assert decades([1e-7, 2e-3]) == (-7, -2)
    assert decades([10.0]) == (1, 2)


@pytest.mark.parametrize("points", [[], [(0.0, 1.0)], [(1.0, -2.0)]])
def test_what_has_no_logarithm_is_refused(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        loglog_chart([Line("a", points, "last")], x_label="n", y_label="s")
