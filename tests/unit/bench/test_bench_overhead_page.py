from bench.machine import Machine
from bench.overhead_page import overhead_page
from bench.results import Report, Row
from bench.spread import Spread

MACHINE = Machine(cpu="Some CPU", cores=2, system="Linux x86_64", python="CPython 3.12.1", load=0.5)


def row(case: str, n: int, peer: str) -> Row:
    return Row(case, n, peer, Spread(1e-6 * n, 1e-6, 1e-6), Spread(2e-6 * n, 2e-6, 2e-6))


def test_the_page_has_a_chart_for_each_case_with_sizes() -> None:
    rows = [
        *(row("rp order", n, peer) for n in (10, 100) for peer in ("python-sort", "floor: sort")),
        row("touch", 100, "python-sort"),
    ]
    page = overhead_page(Report("python -m bench overhead --plot a.html", MACHINE, 3, rows))
    assert page.count("<svg") == 1
    assert "<h2>rp order</h2>" in page
    assert "touch" not in page
    for subject, style in (("coresched", "last"), ("floor: sort", "first"), ("python-sort", "b2")):
        assert f'<i class="key {style}"></i>{subject}' in page
    assert "Some CPU" in page
