"""Recordings of batches read as runs, and what is drawn of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pages import assert_well_formed
from recording_files import HARNESS, TRANSPORT, write_source
from replay_folders import replay_folder

from coresched.cli.main import main
from coresched.lab.replay.recorded import read_recorded
from coresched.lab.report.replay_page import replay_page, reuse_by_turn
from coresched.recording.events import RecordedEvent, Withdrawal


def recorded(folder: Path, **sources: list[RecordedEvent]) -> Path:
    for source, events in sources.items():
        write_source(folder, source, events)  # type: ignore[arg-type]
    return folder


def test_a_recording_is_drawn_with_the_pages_of_a_replay(tmp_path: Path) -> None:
    run = read_recorded(recorded(tmp_path / "run", harness=HARNESS, transport=TRANSPORT), name="<run>")
    assert (run.status, run.samples, run.turns, run.workers) == ("completed", 1, 2, ["w0"])
    metrics = run.metrics
    assert (metrics.makespan_s, metrics.environment_s, metrics.environment_queue_s) == (11.5, 2.0, 5.0)
    assert (metrics.inference_s, metrics.failed_requests, metrics.cache_reuse) == (2.5, 1, 110 / 230)
    assert reuse_by_turn(run) == [(1.0, 0.0), (2.0, 110 / 130)]
    page = replay_page([run])
    assert_well_formed(page)
    for part in (
        "Recorded run of 1 trajectories, 2 turns",
        "All samples completed in",
        "Cache reuse by turn",
        "waiting for an environment slot",
        "2023-11-14 22:13",
    ):
        assert part in page


def test_a_recording_without_usage_or_harness_has_dashes(tmp_path: Path) -> None:
    silent = read_recorded(recorded(tmp_path / "silent", harness=HARNESS), name="silent")
    assert (silent.metrics.input_tokens, silent.metrics.output_tokens) == (None, None)
    assert (silent.metrics.output_tokens_per_s, silent.metrics.cache_reuse) == (None, None)
    bare = read_recorded(recorded(tmp_path / "bare", gateway=TRANSPORT), name="bare")
    assert bare.settings is None
    for run in (silent, bare):
        assert_well_formed(replay_page([run]))


def test_samples_that_did_not_complete_are_counted(tmp_path: Path) -> None:
    withdrawn = recorded(tmp_path / "withdrawn", harness=[*HARNESS[:-1], Withdrawal("a", 11.5)])
    assert read_recorded(withdrawn, name="r").status == "1 withdrawn"
    killed = read_recorded(recorded(tmp_path / "killed", harness=HARNESS[:4]), name="killed")
    assert (killed.status, killed.metrics.makespan_s) == ("1 unfinished", None)
    assert "killed did not reach its end (1 unfinished); 0 of 1 samples completed." in replay_page([killed])


def test_report_compares_recordings_of_the_same_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    gated = recorded(Path("gated"), harness=HARNESS, transport=TRANSPORT)
    with next(gated.iterdir()).open("a") as file:
        file.write('{"event": ')
    recorded(Path("other"), gateway=TRANSPORT)
    assert main(["report", "gated", "other", "--report", "page.html", "--perfetto", "trace.json"]) == 0
    assert "gated: gated/events-" in capsys.readouterr().err
    trace = json.loads(Path("trace.json").read_text())
    assert {"turn 1", "turn 2", "waits for a slot", "environment"} <= {
        e["name"] for e in trace["traceEvents"]
    }
    replay_folder(Path("replay"))
    assert main(["report", "gated", "replay"]) == 2
    assert "or recordings of the same samples" in capsys.readouterr().err
    files = [str(path) for path in gated.iterdir()]
    assert main(["report", "gated", "--report", files[0]]) == 2
    assert "is an input of this command" in capsys.readouterr().err
    assert main(["trace", "import", "gated", "--output", files[0]]) == 2
