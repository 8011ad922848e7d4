"""The results page is what its numbers say, and the benches' JSON is what they come from."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.__main__ import main
from bench.results_page.command import run_bench
from bench.results_page.markdown import interval_text, percent, recorded_text, short, wrapped
from bench.results_page.page import page, plots
from bench.results_page.plots import Mark, Row, rows_plot
from bench.results_page.scales import linear_scale, log_scale, percent_scale
from bench.results_page.summary import packed, shown_command, summarise, unpacked
from coresched.errors import InputError

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    return unpacked((DOCS / "results" / "summary.json").read_text())


def test_the_page_says_what_its_summary_says(summary: dict[str, Any]) -> None:
    assert (DOCS / "results.md").read_text() == page(summary)


def test_the_plots_show_what_the_summary_says(summary: dict[str, Any]) -> None:
    drawn = plots(summary)
    assert {file.stem for file in (DOCS / "results").glob("*.svg")} == set(drawn)
    for name, svg in drawn.items():
        assert (DOCS / "results" / f"{name}.svg").read_text() == svg
        assert f"(results/{name}.svg)" in (DOCS / "results.md").read_text()


def test_every_section_names_the_command_of_its_numbers(summary: dict[str, Any]) -> None:
    text = page(summary)
    for told in summary.values():
        assert f"$ {told['command']}\n" in text


def test_a_changed_number_changes_the_page(summary: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(summary))
    row = next(row for row in changed["better"]["rows"] if row["variant"] == "all parts")
    row["longer"]["median"] = -0.4321
    assert "-43.2" in page(changed)
    assert page(changed) != page(summary)
    assert plots(changed)["better"] != plots(summary)["better"]


def test_what_is_advised_is_a_section_where_it_was_run(summary: dict[str, Any]) -> None:
    share = {"median": 0.09, "low": 0.08, "high": 0.1}
    row = {
        "case": "SWE, W 1",
        "advised": "state-ratio 0.136",
        "method_makespan_s": 6000.0,
        "saved": {"mean": 0.091, "mean_low": 0.083, "mean_high": 0.099, "median": share, "worst": 0.06},
        "noise": 0.036,
    }
    claim = {"claim": "shorter on two", "holds": False, "detail": "on none"}
    told = {"command": "python -m bench advised", "date": "d", "version": "1", "rows": [row]}
    without = {name: told for name, told in summary.items() if name != "advised"}
    text = page({**without, "advised": {**told, "claims": [claim]}})
    assert "| SWE, W 1 | 100.0 | +9.1 (+8.3 to +9.9) | +9.0 (+8.0 to +10.0) | +6.0 | 3.6 |" in text
    assert "shorter on two: **no**; on none." in text
    assert "coresched advise` advises" not in page(without)


def test_a_summary_leaves_out_single_runs_and_where_files_lie() -> None:
    told = {"command": "python -m bench rivals --trajectories /some/where.jsonl x --seeds 6", "date": "d"}
    row = {"makespan_s": 123.456789, "makespans_s": [1.0], "settings": {}}
    trial = {"workload": "w", "estimator": "peak", "ratio_to_best": None}
    found = {
        "rivals": {**told, "rows": [row]},
        "overhead": {**told, "version": "1", "machine": {}, "rows": []},
        "capacity": {**told, "version": "1", "out_of_sample": [trial]},
    }
    small = summarise(found)
    assert small["rivals"]["rows"] == [{"makespan_s": 123.5}]
    assert small["rivals"]["command"] == "python -m bench rivals --trajectories FILE FILE --seeds 6"
    assert small["capacity"]["out_of_sample"][0]["median"] is None


def test_a_packed_summary_is_the_same_again() -> None:
    rows = [{"a": 1, "b": {"low": 0.5}}, {"a": 2, "b": None}]
    summary = {"rivals": {"command": "c", "rows": rows, "one": [{"a": 1}], "unlike": [{"a": 1}, {"b": 2}]}}
    assert unpacked(packed(summary)) == summary
    assert packed(summary).count('"b"') == 2


def test_a_command_without_files_stays_as_it_is() -> None:
    assert shown_command("python -m bench paper --seeds 10") == "python -m bench paper --seeds 10"


def test_results_that_are_missing_are_asked_for_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--from", str(tmp_path), "--into", str(tmp_path)]) == 2
    assert "make it with `python -m bench paper --json`" in capsys.readouterr().err
    (tmp_path / "paper.json").write_text("[]")
    assert main(["results", "--from", str(tmp_path), "--into", str(tmp_path)]) == 2
    assert "paper.json is not what `python -m bench paper --json` prints" in capsys.readouterr().err


def test_a_bench_that_fails_ends_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="python -m bench rivals ended with 2"):
        run_bench("rivals", ["--seeds", "5"], tmp_path / "rivals.json")
    assert "--seeds 5 is too few" in capfd.readouterr().err


def test_shares_are_percent_with_a_sign_and_bold_where_it_is_sure() -> None:
    assert percent(-0.0004) == "0.0"
    assert interval_text({"median": 0.1, "low": -0.1, "high": 0.2}) == "+10.0 (-10.0 to +20.0)"
    assert short({"median": 0.1, "low": 0.05, "high": 0.2}) == "**+10.0**"
    assert short({"median": 0.1, "low": -0.05, "high": 0.2}) == "+10.0"


def test_recorded_batches_are_named_by_their_size() -> None:
    one = {"name": "recorded 1", "trajectories": 1500, "turns": 2}
    assert recorded_text({"recorded": []}) == []
    (text,) = recorded_text({"recorded": [one]})
    assert text.endswith("recorded 1: 1,500 trajectories, 2 turns.")


def test_running_text_is_folded_and_tables_are_not() -> None:
    table, words = "| " + "x " * 100 + "|", "word " * 40
    folded = wrapped(f"{table}\n- {words}").split("\n")
    assert folded[0] == table
    assert [line[:2] for line in folded[1:]] == ["- ", "  "]
    assert max(map(len, folded[1:])) <= 120


def test_scales_keep_their_order_and_their_ends() -> None:
    scale = percent_scale([-3.0, 480.0])
    places = [scale.place(value) for value in (-9.0, -3.0, 0.0, 1.0, 480.0, 900.0)]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0.0, 1.0)
    assert [text for _, text in percent_scale([0.1]).ticks] == ["-1", "0", "+1"]
    assert log_scale([3.0, 200.0]).ticks[0] == (1.0, "1")
    assert linear_scale(1.0, 4.0).place(2.5) == 0.5


def test_a_plot_is_a_whole_svg_with_a_dot_a_mark() -> None:
    rows = [Row("a & b", (Mark(1.0, "x"), Mark(2.0, "y", sure=False)))]
    root = ElementTree.fromstring(rows_plot("title", "axis", rows, percent_scale([1.0, 2.0])))
    dots = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(dots) == 2 + 2  # and the legend's
    assert dots[1].get("fill") == "none"
    assert "a & b" in "".join(root.itertext())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--from . --keep .", "--from runs nothing, so that --keep has no effect; give one of them"),
        ("--from . --trajectories x", "--from runs nothing, so that --trajectories has no effect"),
        ("--absent-environment-s 2", "--absent-environment-s is for recorded batches; give --trajectories"),
        ("--absent-environment-s x", "argument --absent-environment-s: 'x' is not a number"),
        ("--trajectories no-such-file", "no-such-file"),
        (f"--keep {__file__}", "is a file; give a folder"),
    ],
)
def test_what_would_fail_late_or_do_nothing_is_refused_before_any_bench(
    arguments: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bench.results_page.command.BENCHES", ())
    try:
        code = main(["results", "--into", str(tmp_path), *arguments.split()])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert said in capsys.readouterr().err
