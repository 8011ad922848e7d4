import pytest

from bench.beside import beside_at_ten_thousand
from bench.growth import exponent, growths, short
from bench.results import Row
from bench.spread import Spread


def row(case: str, n: int, peer: str, ours: float, theirs: float) -> Row:
    return Row(case, n, peer, Spread(ours, ours, ours), Spread(theirs, theirs, theirs))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_its_power(power: float) -> None:
    assert exponent([(n, 3e-6 * n**power) for n in (10, 100, 1_000, 10_000)]) == pytest.approx(power)


def test_growth_is_of_each_subject_of_cases_with_sizes() -> None:
    rows = [
        row("rp", 10, "twin", 1.0, 1.0),
        row("rp", 10, "floor: sort", 1.0, 2.0),
        row("rp", 1_000, "twin", 1.0, 10_000.0),
        row("rp", 1_000, "floor: sort", 1.0, 20.0),
        row("touch", 100, "twin", 1.0, 2.0),
    ]
    found = {growth.subject: growth for growth in growths(rows)}
    assert list(found) == ["coresched", "twin", "floor: sort"]
    assert [found[name].exponent for name in found] == pytest.approx([0.0, 2.0, 0.5])
    assert found["twin"].a_decade == pytest.approx(100.0)
    assert (found["twin"].smallest, found["twin"].largest) == (10, 1_000)


def test_at_ten_thousand_elements_the_fastest_python_and_the_floor_are_named() -> None:
    rows = [
        row("lbch home", 8, "python-twin", 1.0, 9.0),
        row("lbch home", 80, "python-twin", 2.0, 80.0),
        row("lbch home", 80, "uhashring", 2.0, 6.0),
        row("lbch home", 80, "floor: hash+search", 2.0, 1.0),
        row("caas", 10_000, "python-twin", 1.0, 4.0),
    ]
    (home, caas) = beside_at_ten_thousand(rows)
    assert (home.elements, home.twin, home.best_peer, home.best, home.floor) == (
        10_240,
        40.0,
        "uhashring",
        3.0,
        2.0,
    )
    assert (caas.best_peer, caas.floor) == ("python-twin", None)


def test_sizes_are_short() -> None:
    assert [short(n) for n in (1, 80, 1_000, 10_240, 1_000_000)] == ["1", "80", "1k", "10,240", "1M"]
