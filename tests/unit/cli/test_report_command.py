"""`coresched report` as a person meets it."""

import json
from pathlib import Path

import pytest
from replay_folders import replay_folder

from coresched.cli.main import main
from coresched.lab.replay.run import Ending

COMPLETED = Ending("completed")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("stock", "coordinated", "elsewhere/stock"):
        replay_folder(tmp_path / name, ending=COMPLETED)


def test_two_replays_become_a_table_a_page_and_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "stock", "coordinated", "--report", "page.html", "--perfetto", "trace.json"]) == 0
    out = capsys.readouterr().out
    assert "coordinated took 9.0 s, which is 0.0 % less than stock." in out
    assert out.endswith("report: page.html\ntrace: trace.json\n")
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "<h1>Replay of 2 trajectories, 4 turns</h1>" in Path("page.html").read_text()
    assert json.loads(Path("trace.json").read_text())["traceEvents"]


def test_replays_of_one_name_have_their_paths(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "stock", "elsewhere/stock", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["name"] for run in runs] == ["stock", "elsewhere/stock"]
    assert [run["makespan_s"] for run in runs] == [9.0, 9.0]
    assert not Path("coresched-report.html").exists()


def test_what_cannot_be_compared_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay_folder(tmp_path / "other", ending=COMPLETED, seed=1)
    for folders, expected in (
        (
            ["stock", "other"],
            "'other' replayed other prompts than 'stock'; compare replays of the same",
        ),
        (["stock", "./stock"], "'stock' is given twice; give each folder once"),
        (["stock", "nowhere"], "'nowhere' is no folder of a replay or recording: No such file or directory"),
        (["stock", "--report", "no/page.html"], "--report 'no/page.html'"),
        (
            ["stock", "--report", "x", "--perfetto", "./x"],
            "--report and --perfetto are both 'x'; give each its",
        ),
        (["stock", "--report", "stock/run.json"], "--report 'stock/run.json' is an input of this command"),
        (["stock", "--perfetto", "stock/events.jsonl"], "'stock/events.jsonl' is an input of this command"),
    ):
        assert main(["report", *folders]) == 2
        err = capsys.readouterr().err
        assert err.startswith("coresched report: ")
        assert expected in err
        assert err.count("\n") == 1
    assert not Path("coresched-report.html").exists()
