"""What becomes of a recording in the cases that a run can come to."""

from __future__ import annotations

from pathlib import Path

import pytest
from recording_files import HARNESS, TRANSPORT, attempt, stage, turn, write_source

from coresched.errors import InputError
from coresched.recording.events import (
    Admission,
    Completion,
    EnvironmentStage,
    FailedInference,
    Inference,
    RecordedEvent,
    TurnStart,
    Withdrawal,
)
from coresched.recording.merge import Recording, read_recording
from coresched.recording.reader import recording_files


def recording(folder: Path, **sources: list[RecordedEvent]) -> Recording:
    for source, events in sources.items():
        write_source(folder, source, events)  # type: ignore[arg-type]
    return read_recording(recording_files(folder))


def calls(found: Recording) -> list[tuple[str, int, float, float, int | None]]:
    return [
        (event.sample, event.turn, event.sent_s, event.ended_s, event.prompt_tokens)
        for event in found.events
        if isinstance(event, Inference)
    ]


def failures(found: Recording) -> list[tuple[int, float, float, str]]:
    return [
        (event.turn, event.sent_s, event.ended_s, event.reason)
        for event in found.events
        if isinstance(event, FailedInference)
    ]


def test_a_retry_and_its_pause_are_no_inference_and_the_queue_is_no_tool_time(tmp_path: Path) -> None:
    found = recording(tmp_path, harness=HARNESS, transport=TRANSPORT)
    assert calls(found) == [("a", 0, 1.0, 2.25, 100), ("a", 1, 9.5, 10.75, 130)]
    assert failures(found) == [(0, 0.6, 0.8, "status 503")]
    (only,) = [event for event in found.events if isinstance(event, EnvironmentStage)]
    assert (only.turn, only.requested_s, only.started_s, only.ended_s) == (0, 2.5, 7.5, 9.5)
    assert only.resumed_s == 9.5
    assert found.batch is not None
    assert found.batch.environment_concurrency == 1
    assert found.faults == []


def test_a_harness_alone_times_turns_by_their_blocks(tmp_path: Path) -> None:
    found = recording(tmp_path, harness=HARNESS)
    assert calls(found) == [("a", 0, 0.5, 2.5, None), ("a", 1, 9.5, 11.0, None)]
    assert found.samples[0].by_block == 2


def test_a_gateway_with_another_clock_is_matched_by_answer_ids(tmp_path: Path) -> None:
    late = [
        attempt("a", 101.0, 102.2, 100, 10, worker="w7", answer_id="1"),
        attempt("a", 109.5, 110.7, 130, 5, worker="w7", answer_id="2"),
    ]
    found = recording(tmp_path, harness=HARNESS, transport=TRANSPORT, gateway=late)
    assert [call[:2] for call in calls(found)] == [("a", 0), ("a", 1)]
    assert {event.worker for event in found.events if isinstance(event, Inference)} == {"w7"}
    assert found.faults == []


def test_servers_that_give_all_answers_one_id_are_matched_by_time(tmp_path: Path) -> None:
    same = [attempt("a", one.sent_s, one.ended_s, 100, 10, answer_id="x") for one in TRANSPORT[1:]]  # type: ignore[union-attr]
    inner = [attempt("a", one.sent_s + 0.1, one.ended_s - 0.1, 100, 10, answer_id="x") for one in same]
    found = recording(tmp_path, transport=list(same), gateway=list(inner))
    spans = [time for call in calls(found) for time in call[2:4]]
    assert spans == pytest.approx([0.1, 1.15, 8.6, 9.65])  # the first event is the transport's at 1.0


def test_the_last_answer_of_a_turn_counts(tmp_path: Path) -> None:
    unusable = attempt("a", 0.5, 0.9, 100, 99)
    found = recording(tmp_path, harness=HARNESS, transport=[unusable, *TRANSPORT[1:]])
    assert [call[2] for call in calls(found)] == [1.0, 9.5]


def test_a_turn_that_failed_is_none_though_its_request_was_answered(tmp_path: Path) -> None:
    events = [Admission("a", 0.0), *turn("a", 0.5, 2.5, failed=True), *HARNESS[4:]]
    found = recording(tmp_path, harness=events, transport=TRANSPORT)
    assert calls(found) == [("a", 0, 9.5, 10.75, 130)]
    assert failures(found) == [(0, 0.6, 0.8, "status 503"), (0, 1.0, 2.25, "the turn's block raised")]


def test_a_failed_turn_without_requests_is_drawn_as_its_block(tmp_path: Path) -> None:
    events = [Admission("a", 0.0), *turn("a", 0.5, 2.5, failed=True), *HARNESS[4:]]
    assert failures(recording(tmp_path, harness=events)) == [(0, 0.5, 2.5, "the turn's block raised")]


def test_a_harness_without_turn_blocks_has_the_requests_of_its_transport(tmp_path: Path) -> None:
    events: list[RecordedEvent] = [HARNESS[0], HARNESS[3], HARNESS[-1]]
    found = recording(tmp_path, harness=events, transport=TRANSPORT)
    assert [call[:2] for call in calls(found)] == [("a", 0), ("a", 1)]
    (only,) = [event for event in found.events if isinstance(event, EnvironmentStage)]
    assert (only.turn, only.resumed_s) == (0, 9.5)


def test_a_stage_before_the_first_turn_has_none(tmp_path: Path) -> None:
    events = [Admission("a", 0.0), stage("a", 0.1, 0.2, 0.4), *HARNESS[1:]]
    found = recording(tmp_path, harness=events)
    turns = [event.turn for event in found.events if isinstance(event, EnvironmentStage)]
    assert turns == [None, 0]


def test_an_open_turn_of_a_killed_process_is_no_turn(tmp_path: Path) -> None:
    events = [*HARNESS[:4], TurnStart("a", 9.5, None)]
    found = recording(tmp_path, harness=events, transport=TRANSPORT)
    assert [call[:2] for call in calls(found)] == [("a", 0)]
    assert found.samples[0].state == "unfinished"


def test_a_sample_that_a_dead_process_began_is_that_of_who_took_over(tmp_path: Path) -> None:
    write_source(tmp_path, "harness", HARNESS[:4], id="dead")
    write_source(tmp_path, "harness", HARNESS, id="alive", late_s=20.0)
    found = recording(tmp_path, transport=TRANSPORT)
    assert [(sample.sample, sample.state) for sample in found.samples] == [("a", "completed")]
    assert calls(found)[0][2] == 20.5
    assert found.faults == ["sample 'a': it did not end and was begun again; only that is counted"]


def test_an_id_of_two_batches_is_two_samples(tmp_path: Path) -> None:
    write_source(tmp_path, "harness", HARNESS, id="first")
    write_source(tmp_path, "harness", HARNESS, id="second", late_s=20.0)
    found = recording(tmp_path, transport=TRANSPORT)
    assert [sample.sample for sample in found.samples] == ["a", "a~2"]
    expected = [("a", 0, 1.0), ("a", 1, 9.5), ("a~2", 0, 20.5), ("a~2", 1, 29.5)]
    assert [call[:3] for call in calls(found)] == expected


def test_withdrawn_samples_say_so(tmp_path: Path) -> None:
    found = recording(tmp_path, harness=[*HARNESS[:-1], Withdrawal("a", 11.5)])
    assert found.samples[0].state == "withdrawn"
    assert isinstance(found.events[-1], Withdrawal)


def test_requests_that_are_of_no_turn_are_told(tmp_path: Path) -> None:
    stray = [attempt("a", 5.0, 5.5, 100, 10), attempt("a", 60.0, 61.0, 100, 10)]
    found = recording(tmp_path, harness=HARNESS, transport=[*TRANSPORT, *stray])
    assert len(calls(found)) == 2
    assert found.faults == ["sample 'a': 2 requests are outside of its turns and not counted"]


def test_what_cannot_be_read_is_told_with_its_place_and_the_rest_used(tmp_path: Path) -> None:
    path = write_source(tmp_path, "harness", HARNESS)
    head, *lines = path.read_text().splitlines()
    bad = [
        '{"event": "unheard", "sample": "a"}',
        '{"event": "turn-end", "sample": "a", "began_s": 3, "ended_s": 2, "worker": null, "failed": false}',
        '{"event": "admission", "sample": "b", "at_s": -1}',
        '{"event": "admission", "sam',
    ]
    path.write_text("\n".join([head, *lines, *bad, '{"event": "adm']))
    (tmp_path / "events-newer.jsonl").write_text(head.replace('"recording":1', '"recording":2') + "\n")
    (tmp_path / "events-other.jsonl").write_text('{"time": 3}\n')
    (tmp_path / "events-torn.jsonl").write_text('{"recor')
    found = read_recording(recording_files(tmp_path))
    assert len(calls(found)) == 2
    told = [fault.removeprefix(f"{tmp_path}/") for fault in found.faults]
    number = len(lines) + 2
    assert told == [
        f"{path.name}: line {number}: it is no event: Invalid value 'unheard' - at `$.event`",
        f"{path.name}: line {number + 1}: its end is before its beginning",
        f"{path.name}: line {number + 2}: it is no event: Expected `float` >= 0.0 - at `$.at_s`",
        f"{path.name}: line {number + 3}: it is no event: Input data was truncated",
        f"{path.name}: its last line breaks off; its writer was killed, or is still writing",
        "events-newer.jsonl: line 1: it is of version 2, and this reads version 1; read it with the "
        "coresched that wrote it",
        "events-other.jsonl: line 1: it is not the first line of a recording: Object missing required field "
        "`recording`",
        "events-torn.jsonl: line 1: it breaks off; its writer was killed as it began",
    ]


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing was recorded: there is no file of a recording"):
        read_recording(recording_files(tmp_path))
    (tmp_path / "events-torn.jsonl").write_text('{"recor')
    with pytest.raises(InputError, match=r"nothing was recorded: .*line 1: it breaks off"):
        read_recording(recording_files(tmp_path))


def test_times_are_since_the_first_event(tmp_path: Path) -> None:
    write_source(tmp_path, "harness", [Admission("b", 3.0), Completion("b", 4.0)], late_s=-2.0)
    found = read_recording(recording_files(tmp_path))
    assert [event.at_s for event in found.events if isinstance(event, Admission | Completion)] == [0.0, 1.0]
