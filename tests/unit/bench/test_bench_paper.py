"""The published experiments in the simulator: what is run, and what is said of it."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from bench.__main__ import main
from bench.paper.experiments import EXPERIMENTS, batch, published
from bench.paper.runs import Result, makespan_min, run_cell
from bench.paper.shapes import SHAPES, Shape


def made(name: str, makespans: Mapping[tuple[str, str, str], float] | None = None) -> list[Shape]:
    """The shapes if every simulated cell is as published, but for those given (workload, row, column)."""
    results = {}
    for cell in EXPERIMENTS[name]():
        minutes = cell.published_min or (cell.limit_min or 100.0) * 1.5
        minutes = (makespans or {}).get((cell.workload, cell.row, cell.column), minutes)
        seconds = published()["table1"].get(cell.workload, {}).get("seconds_by_policy", {}).get(cell.row, 0.0)
        imbalance = published()["figure10"].get(cell.workload, {}).get("request_imbalance_by_router", {})
        result = Result(minutes, minutes / 10, 0.9, seconds, imbalance.get(cell.row, 0.1), 1.1)
        results[cell] = [replace(result, makespan_min=minutes * (1 + seed / 1000)) for seed in range(6)]
    return list(SHAPES[name](results))


def verdict(shapes: list[Shape], workload: str, claim: str) -> str:
    (found,) = [shape for shape in shapes if shape.workload == workload and shape.claim == claim]
    return found.verdict


def test_all_published_cells_are_there() -> None:
    counts = {name: len(list(cells())) for name, cells in EXPERIMENTS.items()}
    assert counts == {"figure3": 86, "figure6": 48, "figure8": 9, "figure11": 8, "table2": 7}
    cells = [cell for cells in EXPERIMENTS.values() for cell in cells()]
    assert len(set(cells)) == len(cells)
    assert sum(cell.stopped for cell in cells) == 17


@pytest.mark.parametrize("name", ["figure3", "figure6", "figure8", "table2"])
def test_what_is_as_published_reproduces(name: str) -> None:
    assert {shape.verdict for shape in made(name)} == {"reproduces"}


def test_a_cliff_elsewhere_is_seen() -> None:
    one_step = {("SWE", "r 0.09", "123"): 130.0}
    assert verdict(made("figure3", one_step), "SWE", "highest C_S before the cliff, by ratio") == "in part"
    two_steps = {**one_step, ("SWE", "r 0.09", "147"): 130.0}
    assert verdict(made("figure3", two_steps), "SWE", "highest C_S before the cliff, by ratio") == "does not"


def test_another_best_cell_is_seen_unless_it_is_as_good() -> None:
    where = ("WideSearch", "r 0.2", "98")
    assert verdict(made("figure3", {where: 60.0}), "WideSearch", "best cell") == "does not"
    assert verdict(made("figure3", {where: 82.0}), "WideSearch", "best cell") == "reproduces"


def test_another_winner_is_seen_unless_they_are_level() -> None:
    claim, where = "policies at C_S 1950, best first", ("BFCL", "routing-prefix", "1950")
    assert verdict(made("figure6", {where: 24.1}), "BFCL", claim) == "reproduces"  # dfs-weight has 24.0
    assert verdict(made("figure6", {where: 26.0}), "BFCL", claim) == "does not"


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [(72.7, "reproduces"), (74.5, "in part"), (75.3, "does not"), (77.0, "does not"), (60.0, "in part")],
)
def test_an_effect_is_judged_by_its_sign_and_size(minutes: float, expected: str) -> None:
    found = made("figure8", {("SWE", "lbch", "makespan"): minutes})
    assert verdict(found, "SWE", "LBCH against consistent-hash") == expected


def test_an_effect_that_only_some_seeds_show_does_not_reproduce() -> None:
    results = {}
    for cell in EXPERIMENTS["figure11"]():
        result = Result(100.0, 10.0, 0.9, 0.0, 0.1, 1.1)
        swings = (0.9, 1.1) if "caas" in cell.column else (1.0,)
        results[cell] = [replace(result, makespan_min=100 * swings[n % len(swings)]) for n in range(8)]
    shapes = [shape for shape in SHAPES["figure11"](results) if shape.experiment == "Figure 12"]
    assert {shape.verdict for shape in shapes if shape.claim.endswith("makespan")} == {"does not"}


def test_a_seed_is_a_batch_with_the_published_totals() -> None:
    totals = {"SWE": (289, 25_416), "BFCL": (5_106, 17_029), "MCP-Atlas": (495, 4_950)}
    for name, (trajectories, requests) in totals.items():
        found = batch(name, 3)
        assert (len(found), sum(len(one.turns) for one in found)) == (trajectories, requests)
    assert batch("MCP-Atlas", 3) != batch("MCP-Atlas", 4)


def test_a_run_that_passes_the_limit_is_stopped() -> None:
    cells = {(cell.workload, cell.row, cell.column): cell for cell in EXPERIMENTS["figure3"]()}
    ends, stops = cells["WideSearch", "r 0.15", "98"], cells["SWE", "r 0.9", "157"]
    results = {cell: [run_cell(cell, 0)] for cell in (ends, stops)}
    assert makespan_min(ends, results) == pytest.approx(results[ends][0].makespan_min)
    assert makespan_min(stops, results) is None
    assert stops.stopped


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "--only", "figure11", "--seeds", "6"]) == 0
    out = capsys.readouterr().out
    assert "Of 6 shapes: reproduces:" in out
    assert "8 of 8 cells agree" in out
    assert main(["paper", "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["seeds"] == 6
    assert len(report["cells"]) == 8
    assert {shape["experiment"] for shape in report["shapes"]} == {"Figure 11", "Figure 12"}
    assert main(["paper", "--seeds", "3"]) == 2
    assert "--seeds 3 is too few" in capsys.readouterr().err
