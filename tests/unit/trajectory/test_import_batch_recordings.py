"""Recordings of batches as traces: what counts, what it is worth, and what is left out."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording_files import HARNESS, TRANSPORT, attempt, stage, turn, write_source
from test_import_fuzz import mutated

from coresched.errors import InputError
from coresched.recording.events import Admission, RecordedEvent, TurnEnd, TurnStart, Withdrawal
from coresched.trajectory.importers.run import ImportReport, import_traces
from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.schema import Trajectory
from coresched.trajectory.writer import write_trajectories


def imported(folder: Path, **sources: list[RecordedEvent]) -> tuple[list[Trajectory], ImportReport]:
    for source, events in sources.items():
        write_source(folder, source, events)  # type: ignore[arg-type]
    report = ImportReport()
    return list(import_traces([folder], report)), report


def test_a_recording_is_told_by_its_folder_and_reads_back_equal(tmp_path: Path) -> None:
    found, report = imported(tmp_path / "run", harness=HARNESS, transport=TRANSPORT)
    assert (report.skipped, report.formats) == ([], {"recording": 1})
    (only,) = found
    assert (only.id, only.prompt_tokens()) == ("a", [100, 130])
    assert [one.output_tokens for one in only.turns] == [10, 5]
    assert [one.infer_s for one in only.turns] == [1.25, 1.25]
    env = only.turns[0].env
    assert env is not None
    assert (env.duration_s, env.response_tokens, env.n_calls, env.quality) == (2.0, 20, 1, "exact")
    assert only.turns[1].env is None
    assert list(import_traces([tmp_path / "run"], ImportReport(), "recording")) == found
    write_trajectories(tmp_path / "trace.jsonl", found)
    assert load_trajectories(tmp_path / "trace.jsonl") == found


def test_reasoning_is_not_kept_and_stages_one_after_the_other_add_up(tmp_path: Path) -> None:
    transport = [
        attempt("a", 1.0, 2.25, 100, 10, reasoning_tokens=6),
        attempt("a", 9.5, 10.75, 130, 5),
    ]
    harness = [*HARNESS[:3], stage("a", 2.5, 3.0, 3.5), *HARNESS[3:]]
    (only,), _ = imported(tmp_path, harness=harness, transport=transport)
    assert only.turns[0].kept == 4
    env = only.turns[0].env
    assert env is not None
    assert (env.duration_s, env.n_calls, env.response_tokens) == (2.5, 2, 26)


def test_what_a_harness_told_serves_where_nobody_saw_the_answer(tmp_path: Path) -> None:
    told = [
        Admission("a", 0.0),
        TurnStart("a", 0.5, "w"),
        TurnEnd("a", 0.5, 2.5, "w", False, 100, None, 10),
        stage("a", 2.5, 7.5, 9.5),
        TurnStart("a", 9.5, "w"),
        TurnEnd("a", 9.5, 11.0, "w", False, 130, 20, 5),
        HARNESS[-1],
    ]
    (only,), _ = imported(tmp_path, harness=told)
    assert (only.prompt_tokens(), [one.infer_s for one in only.turns]) == ([100, 130], [2.0, 1.5])
    assert only.meta["inference"].startswith("derived: the turn's block")
    assert only.meta["tokens"] == "exact: the usage of the answers"


def test_without_a_harness_the_pauses_are_derived(tmp_path: Path) -> None:
    (only,), report = imported(tmp_path, gateway=TRANSPORT)
    env = only.turns[0].env
    assert env is not None
    assert (env.duration_s, env.quality) == (7.25, "derived")
    assert only.meta["env_duration"].startswith("derived: from the end of an answer to the next request")
    assert "completed" not in only.meta
    assert report.cut_short == 0


def test_a_withdrawn_sample_is_imported_and_says_so(tmp_path: Path) -> None:
    (only,), report = imported(tmp_path, harness=[*HARNESS[:-1], Withdrawal("a", 11.5)], transport=TRANSPORT)
    assert (only.meta["completed"], len(only.turns), report.cut_short) == (False, 2, 1)


def test_a_stage_before_the_first_turn_is_told_beside_the_turns(tmp_path: Path) -> None:
    harness = [HARNESS[0], stage("a", 0.1, 0.2, 0.4), *HARNESS[1:]]
    (only,), _ = imported(tmp_path, harness=harness, transport=TRANSPORT)
    assert only.meta["environment_before_first_turn_s"] == 0.2
    assert only.turns[0].env is not None
    assert only.turns[0].env.duration_s == 2.0


def test_a_turn_without_usage_is_reported_with_what_would_help(tmp_path: Path) -> None:
    (found, report) = imported(
        tmp_path,
        harness=[*HARNESS, Admission("b", 0.0), *turn("b", 1.0, 2.0)],
        transport=[*TRANSPORT, attempt("b", 1.0, 2.0)],
    )
    assert [one.id for one in found] == ["a"]
    (skipped,) = report.skipped
    assert skipped.startswith(f'{tmp_path}, sample "b": turn 1 has no usage; record in the transport')


def test_files_of_a_recording_are_refused_one_by_one(tmp_path: Path) -> None:
    path = write_source(tmp_path, "harness", HARNESS)
    for form in (None, "recording"):
        with pytest.raises(
            InputError, match=r"a recording is a folder, in which .*; give that, not a file in it"
        ):
            list(import_traces([path], ImportReport(), form))
    with pytest.raises(InputError, match="this is the folder of a recording; of the formats only recording"):
        list(import_traces([tmp_path], ImportReport(), "otel"))


LINES = [
    json.loads(msgspec.json.encode(event))
    for events in (HARNESS, [*TRANSPORT, attempt("b", 0.5, 0.75, 7, 1)])
    for event in events
]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lines=mutated(LINES), split=st.integers(0, len(LINES)))
def test_mutated_lines_are_imported_or_reported(lines: list[Any], split: int) -> None:
    report = ImportReport()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for source, some in (("harness", lines[:split]), ("transport", lines[split:])):
            path = write_source(folder, source, [])  # type: ignore[arg-type]
            with path.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in some)
        try:
            found = list(import_traces([folder], report))
        except InputError as error:
            found = []
            report.skipped.append(str(error))
        if found:
            write_trajectories(folder / "trace.jsonl", found)
            assert load_trajectories(folder / "trace.jsonl") == found
    assert found or report.skipped
    assert all("\n" not in line for line in report.skipped)
