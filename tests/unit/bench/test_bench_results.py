import pytest

from bench.machine import Machine, model_name
from bench.results import Report, Row, print_report, ratio_text, row_as_json, time_text
from bench.spread import Spread

MACHINE = Machine(cpu="Some CPU", cores=2, system="Linux x86_64", python="CPython 3.12.1", load=0.5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 ns"),
        (1.234e-9, "1.23 ns"),
        (2.5e-8, "25.0 ns"),
        (3.1449e-7, "314 ns"),
        (9.996e-7, "1.00 µs"),
        (0.00099949, "999 µs"),
        (0.0015, "1.50 ms"),
        (12.345, "12.3 s"),
    ],
)
def test_time_text(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.5, "0.50x"), (9.999, "10.0x"), (99.96, "100x"), (3139.4, "3,139x")]
)
def test_ratio_text(ratio: float, text: str) -> None:
    assert ratio_text(ratio) == text


def test_a_row_in_json() -> None:
    row = Row("lbch home", 2, "peer", Spread(2.0, 1.0, 3.0), Spread(5.0, 4.0, 6.0), {"events": 7})
    assert row_as_json(row, 9) == {
        "case": "lbch home",
        "n": 2,
        "events": 7,
        "ours_s": 2.0,
        "ours_spread_s": [1.0, 3.0],
        "peer": "peer",
        "peer_s": 5.0,
        "peer_spread_s": [4.0, 6.0],
        "ratio": 2.5,
        "repeats": 9,
    }


def test_the_table_has_ours_once_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    ours = Spread(2e-6, 1e-6, 2e-6)
    rows = [
        Row("case a", 1000, "peer 1", ours, Spread(4e-6, 4e-6, 4e-6)),
        Row("case a", 1000, "peer 2", ours, Spread(6e-3, 6e-3, 6e-3)),
        Row("case b", 5, "peer 1", ours, Spread(1e-6, 1e-6, 1e-6)),
    ]
    report = Report("python -m bench x", MACHINE, 3, rows)
    print_report(report, "median", lambda spread: time_text(spread.median), ["A note."])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["$", "python", "-m", "bench", "x"]
    assert lines[2] == ["Some", "CPU,", "2", "cores,", "load", "0.50", "at", "the", "start"]
    assert lines[4:10] == [
        ["case", "n", "subject", "median", "IQR", "ratio"],
        ["case", "a", "1,000", "coresched", "2.00", "µs", "50%"],
        ["peer", "1", "4.00", "µs", "0%", "2.00x"],
        ["peer", "2", "6.00", "ms", "0%", "3,000x"],
        ["case", "b", "5", "coresched", "2.00", "µs", "50%"],
        ["peer", "1", "1.00", "µs", "0%", "0.50x"],
    ]
    assert ["A", "note."] in lines


def test_model_name_of_cpuinfo() -> None:
    assert model_name("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some: CPU\n") == "Some: CPU"
    assert model_name("processor\t: 0\nBogoMIPS\t: 50.00\n") is None
