"""Each importer on a small file of its format: exact numbers."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from importer_documents import DOCUMENTS, FILE_FORMATS, RECORDINGS, SAMPLES, T, iso, written

from coresched.trajectory.importers.run import ImportReport, import_traces
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.importers.unpacking import opened_archive
from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.schema import Trajectory
from coresched.trajectory.writer import write_trajectories


def imported(folder: Path, document: Any, form: str | None = None) -> list[Trajectory]:
    report = ImportReport()
    found = list(import_traces([written(folder, document)], report, form))
    assert report.skipped == []
    return found


def stages(trajectory: Trajectory) -> list[tuple[float | None, int, str | None, str] | None]:
    """(seconds, calls, kind, quality) of each stage."""
    return [
        None if turn.env is None else (turn.env.duration_s, turn.env.n_calls, turn.env.kind, turn.env.quality)
        for turn in trajectory.turns
    ]


def outputs(trajectory: Trajectory) -> list[int]:
    return [turn.output_tokens for turn in trajectory.turns]


def inference(trajectory: Trajectory) -> list[float | None]:
    return [turn.infer_s for turn in trajectory.turns]


@pytest.mark.parametrize("name", FILE_FORMATS)
def test_a_file_is_told_by_what_is_in_it_and_its_trace_reads_back_equal(name: str, tmp_path: Path) -> None:
    found = imported(tmp_path, DOCUMENTS[name])
    assert len(found) == SAMPLES[name]
    assert {trajectory.meta["imported_from"] for trajectory in found} == {name}
    assert found == imported(tmp_path, DOCUMENTS[name], form=name)
    write_trajectories(tmp_path / "trace.jsonl.zst", found)
    assert load_trajectories(tmp_path / "trace.jsonl.zst") == found


def test_mini_swe_agent(tmp_path: Path) -> None:
    (found,) = imported(tmp_path, DOCUMENTS["mini-swe-agent"])
    assert found.id == "recording"
    assert found.prompt_tokens() == [100, 180, 230, 260]
    assert outputs(found) == [20, 10, 5, 30]
    # A reply that could not be parsed is a call; what the next prompt has instead is the harness's answer.
    assert [turn.kept for turn in found.turns[:3]] == [20, 10, 0]
    assert stages(found) == [
        (1.5, 2, "bash", "derived"),
        (0.25, 1, "bash", "derived"),
        (0.0, 0, None, "estimated"),
        None,
    ]
    # No time stamp has the first call's start, the refused one's end, and so the start of the one after it.
    assert inference(found) == [None, 2.0, None, None]
    assert found.meta["tokens"] == "exact: the provider's usage"


def test_mini_swe_agent_as_recorded_by_it() -> None:
    (found,) = import_traces([RECORDINGS / "task-0.traj.json"], ImportReport())
    assert (found.id, found.prompt_tokens(), outputs(found)) == ("task-0", [29, 164, 265], [40, 41, 42])
    # Of 40 and 41 tokens 25 are reasoning, which the next prompt does not carry.
    assert [turn.kept for turn in found.turns[:2]] == [15, 16]
    # The two commands slept for 0.2 and 0.4 s, one after the other; the third for 0.3 s.
    assert stages(found) == [(0.75632, 2, "bash", "derived"), (0.325654, 1, "bash", "derived"), None]
    assert inference(found) == [None, 0.597851, 0.208958]


def test_a_gated_run_of_mini_swe_agent_has_no_queue_wait_in_its_stages(tmp_path: Path) -> None:
    document = copy.deepcopy(DOCUMENTS["mini-swe-agent"])
    replies = [one for one in document["messages"] if one["role"] == "assistant"]
    for reply in replies:
        reply["extra"]["coresched"] = {"inference_s": 0.7}
    first, second, third = (one for one in document["messages"] if one["role"] == "tool")
    first["extra"]["coresched"] = {"environment_queue_s": 1.1, "environment_s": 0.25}
    second["extra"]["coresched"] = {"environment_queue_s": 0.0, "environment_s": 0.125}
    third["extra"]["coresched"] = {"environment_queue_s": 0.05, "environment_s": 0.2}
    (found,) = imported(tmp_path, document)
    assert stages(found)[:2] == [(0.375, 2, "bash", "exact"), (0.2, 1, "bash", "exact")]
    assert inference(found) == [0.7, 0.7, None, 0.7]
    assert found.meta["env_duration"] == "exact, without the wait for a slot"
    assert found.meta["inference"] == "exact, of the attempt that was answered"


def test_version_1_of_mini_swe_agent_has_no_time_stamps(tmp_path: Path) -> None:
    def reply(prompt: int) -> dict[str, Any]:
        usage = {"prompt_tokens": prompt, "completion_tokens": 9}
        return {"role": "assistant", "content": "ls", "extra": {"response": {"usage": usage}}}

    said = {"role": "user", "content": "out"}
    document = {"trajectory_format": "mini-swe-agent-1", "messages": [said, reply(20), said, reply(40)]}
    (found,) = imported(tmp_path, document)
    assert stages(found) == [(None, 1, "bash", "absent"), None]
    assert found.meta["env_duration"] == found.meta["inference"] == "absent"


def test_mini_swe_agent_with_the_responses_api(tmp_path: Path) -> None:
    details = {"reasoning_tokens": 4}
    usage = {"input_tokens": 30, "output_tokens": 9, "output_tokens_details": details}
    reply = {"object": "response", "model": "m", "usage": usage, "output": []}
    reply["extra"] = {"actions": [{}], "timestamp": T}
    seen = {"type": "function_call_output", "output": "x", "extra": {"timestamp": T + 2}}
    second = {**reply, "usage": {"input_tokens": 50, "output_tokens": 7}}
    document = {"trajectory_format": "mini-swe-agent-1.1", "messages": [reply, seen, second]}
    (found,) = imported(tmp_path, document)
    assert found.prompt_tokens() == [30, 50]
    assert found.turns[0].kept == 5
    assert stages(found) == [(2.0, 1, "bash", "derived"), None]


def test_inspect(tmp_path: Path) -> None:
    found, other = imported(tmp_path, DOCUMENTS["inspect"])
    assert (found.id, other.id) == ("a_epoch_1", "b_epoch_1")
    # Not the attempt that failed, not the sub-agent and its tool, not the scorer.
    assert found.prompt_tokens() == [100, 200, 300]
    assert outputs(found) == [20, 30, 40]
    assert inference(found) == [0.5, 0.75, 1.5]
    assert stages(found) == [(5.0, 2, "bash", "exact"), (2.0, 1, "bash", "exact"), None]


def test_inspect_as_recorded_by_it_in_both_of_its_forms(tmp_path: Path) -> None:
    packed = list(import_traces([RECORDINGS / "counting.eval"], ImportReport()))
    assert [trajectory.id for trajectory in packed] == ["count-0_epoch_1", "count-1_epoch_1"]
    assert [trajectory.prompt_tokens() for trajectory in packed] == [[24, 133, 222]] * 2
    assert [outputs(trajectory) for trajectory in packed] == [[40, 41, 42]] * 2
    assert stages(packed[0]) == [(0.868713, 2, "shell", "exact"), (0.329636, 1, "shell", "exact"), None]
    # The second call was answered at the second attempt; its time is that attempt's.
    assert inference(packed[0]) == [1.024311, 0.201364, 0.183024]

    with opened_archive(str(RECORDINGS / "counting.eval")) as archive:
        names = sorted(name for name in archive.names() if name.startswith("samples/"))
        header = json.loads(archive.read("header.json"))
        log = {**header, "samples": [json.loads(archive.read(name)) for name in names]}
    assert imported(tmp_path, log) == packed


def test_a_tool_of_inspect_that_did_not_end_leaves_its_stage_without_a_duration(tmp_path: Path) -> None:
    log = json.loads(json.dumps(DOCUMENTS["inspect"]))
    del log["samples"][0]["events"][4]["completed"]
    found, _ = imported(tmp_path, log)
    assert stages(found)[0] == (None, 2, "bash", "absent")


def test_swe_agent(tmp_path: Path) -> None:
    (found,) = imported(tmp_path, DOCUMENTS["swe-agent"])
    # The demonstration is part of the first prompt: 40 + 8 + 8 + 20 bytes, four to a token.
    assert found.prompt_tokens() == [19, 35]
    assert outputs(found) == [6, 7]  # 20 bytes of text, a line's end, and the action
    assert stages(found) == [(0.5, 1, "bash", "exact"), (1.25, 1, "bash", "exact")]
    assert found.meta["tokens"] == "estimated: one token for 4 bytes of UTF-8 text"


def test_a_function_call_of_swe_agent_is_output_that_its_response_does_not_have(tmp_path: Path) -> None:
    document = json.loads(json.dumps(DOCUMENTS["swe-agent"]))
    first, second, _ = document["trajectory"]
    first |= {"response": "ls: I look", "action": "ls"}  # the text has the action
    second |= {"response": "", "action": "cat " + "a" * 16}
    (found,) = imported(tmp_path, document)
    assert outputs(found) == [3, 6]  # of the second an empty line and 20 bytes


def test_tau2(tmp_path: Path) -> None:
    found, other = imported(tmp_path, DOCUMENTS["tau2"])
    assert (found.id, other.id) == ("7_trial_0", "7_trial_1")
    # The greeting has no usage: it is scripted, and part of the first prompt.
    assert found.prompt_tokens() == [500, 600, 650]
    assert inference(found) == [0.5, 0.5, 0.5]
    assert stages(found) == [(0.25, 1, "tool", "derived"), (4.0, 1, "user", "derived"), None]


def test_a_single_simulation_of_tau2(tmp_path: Path) -> None:
    (found,) = imported(tmp_path, DOCUMENTS["tau2"]["simulations"][0])
    assert (found.id, found.prompt_tokens()) == ("7_trial_0", [500, 600, 650])


def test_bfcl(tmp_path: Path) -> None:
    found, single = imported(tmp_path, DOCUMENTS["bfcl"])
    assert found.prompt_tokens() == [150, 200, 280]
    assert outputs(found) == [30, 10, 35]
    assert inference(found) == [0.5, 0.25, 0.75]
    # No tool's time is recorded; what follows the end of a turn is the test's next message, not a job.
    assert stages(found) == [(None, 2, "tool", "absent"), (0.0, 0, None, "estimated"), None]
    assert (single.id, single.prompt_tokens(), inference(single)) == ("simple_1", [90], [1.5])


def test_atif(tmp_path: Path) -> None:
    (found,) = imported(tmp_path, DOCUMENTS["atif"])
    assert found.id == "run-1"
    # The last step sums three calls: its prompt is the one before, its reply, and 8 bytes of observation.
    assert found.prompt_tokens() == [100, 150, 150 + 10 - 4 + 2]
    assert [turn.kept for turn in found.turns[:2]] == [16, 6]
    assert outputs(found) == [20, 10, 3]
    assert stages(found) == [(None, 2, "tool", "absent"), (None, 1, "tool", "absent"), None]
    assert found.meta["tokens"] == "estimated: 1 of 3 calls: one token for 4 bytes of UTF-8 text"


def test_otel(tmp_path: Path) -> None:
    found, _ = imported(tmp_path, DOCUMENTS["otel"])
    assert found.id == "a" * 32
    # Neither the failed call nor the one within a tool is a turn; the tools ran from 4 to 7 and 6 to 9.
    assert found.prompt_tokens() == [100, 300]
    assert inference(found) == [2.0, 2.0]
    assert stages(found) == [(5.0, 2, "bash", "exact"), None]


def test_otel_as_its_python_sdk_and_the_openai_instrumentation_export_it() -> None:
    found, other = import_traces([RECORDINGS / "spans.json"], ImportReport())
    assert [found.prompt_tokens(), other.prompt_tokens()] == [[12, 121, 210]] * 2
    assert outputs(found) == [40, 41, 42]
    # The two tools, which slept for 0.2 and 0.4 s, ran side by side.
    assert stages(found) == [(0.415808, 2, "shell", "exact"), (0.315708, 1, "shell", "exact"), None]
    # The client's retry of the second call is within its span.
    assert inference(found) == [0.207596, 0.566647, 0.167891]


def test_otel_conversations_go_before_traces(tmp_path: Path) -> None:
    export = json.loads(json.dumps(DOCUMENTS["otel"]))
    for scope in export["resourceSpans"][0]["scopeSpans"]:
        for span in scope["spans"]:
            named = {"key": "gen_ai.conversation.id", "value": {"stringValue": "talk"}}
            span["attributes"].append(named)
    (found,) = imported(tmp_path, [export])  # as JSON lines, which collectors write
    assert (found.id, len(found.turns)) == ("talk", 4)


def test_tracelab(tmp_path: Path) -> None:
    found, _ = imported(tmp_path, DOCUMENTS["tracelab"])
    assert found.id == "one"
    assert found.prompt_tokens() == [100, 200, 260]
    assert inference(found) == [2.5, 1.0, 2.0]
    # What a tool says of its own time goes before the log's, in which a person's approval is; a person's
    # next message is no job.
    assert stages(found) == [(2.5, 2, "Bash", "exact"), (None, 0, "user", "absent"), None]


def test_mooncake(tmp_path: Path) -> None:
    found, other = imported(tmp_path, DOCUMENTS["mooncake"])
    assert (found.id, other.id) == ("recording-1", "recording-2")
    assert (found.prompt_tokens(), outputs(found)) == ([1100, 1700, 1800], [50, 60, 70])
    assert other.prompt_tokens() == [600]
    assert stages(found) == [(None, 1, None, "absent"), (None, 1, None, "absent"), None]


def test_bailian(tmp_path: Path) -> None:
    found, other = imported(tmp_path, DOCUMENTS["bailian"])
    assert (found.id, found.prompt_tokens(), outputs(found)) == ("1", [100, 150, 200], [20, 10, 30])
    assert (other.id, other.prompt_tokens()) == ("3", [140])


def test_replay(tmp_path: Path) -> None:
    found, other = imported(tmp_path, DOCUMENTS["replay"])
    assert (found.id, found.prompt_tokens(), outputs(found)) == ("a", [100, 130], [10, 10])
    # The attempt that failed is none of the inference time, the wait for a slot none of the stage's.
    assert inference(found) == [0.75, 0.5]
    assert stages(found) == [(2.5, 1, None, "exact"), None]
    assert (other.id, other.prompt_tokens()) == ("b", [50])


def test_of_a_replay_that_was_stopped_the_samples_that_completed_are_imported(tmp_path: Path) -> None:
    events = DOCUMENTS["replay"]
    report = ImportReport()
    assert [one.id for one in import_traces([written(tmp_path, events[:-1])], report)] == ["a"]
    assert [line.partition(", ")[2] for line in report.skipped] == [
        'line 2: sample "b": it did not complete in this replay'
    ]
    lost = [event for event in events if (event["sample"], event.get("turn")) != ("a", 0)]
    report = ImportReport()
    assert [one.id for one in import_traces([written(tmp_path, lost)], report)] == ["b"]
    assert report.skipped[0].endswith('line 1: sample "a": a turn is missing')


def test_a_replays_folder_stands_for_its_events(tmp_path: Path) -> None:
    written(tmp_path, DOCUMENTS["replay"]).rename(tmp_path / "events.jsonl")
    assert [found.id for found in import_traces([tmp_path], ImportReport())] == ["a", "b"]


def test_openai_messages(tmp_path: Path) -> None:
    found, other = imported(tmp_path, DOCUMENTS["openai-messages"])
    assert (found.id, other.id) == ("one", "recording-2")
    reply = -(-len("z" * 20 + "\nls\n{}" * 2) // 4)
    # Reasoning is generated and not carried on.
    assert outputs(found) == [reply, 3 + 2, 2]
    assert [turn.kept for turn in found.turns] == [reply, 3, 2]
    assert found.initial_prompt_tokens == 10 + 4
    assert [turn.env.response_tokens for turn in found.turns if turn.env] == [30, 1]
    assert stages(found) == [(None, 2, "tool", "absent"), (None, 1, "user", "absent"), None]


def test_a_tokenizer_of_the_callers_counts_and_is_named(tmp_path: Path) -> None:
    words = TokenCounter(lambda text: len(text.split()), "counted", "words of the text")
    path = written(tmp_path, DOCUMENTS["swe-agent"])
    (found,) = import_traces([path], ImportReport(), count=words)
    assert (found.prompt_tokens(), outputs(found)) == ([4, 7], [2, 3])
    assert found.meta["tokens"] == "counted: words of the text"


def test_a_bare_array_of_messages_is_one_conversation(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(DOCUMENTS["openai-messages"][0]["messages"], indent=1))
    (found,) = import_traces([path], ImportReport())
    assert (found.id, len(found.turns)) == ("chat", 3)


def test_a_clock_that_ran_backwards_leaves_the_duration_out_and_says_so(tmp_path: Path) -> None:
    run = json.loads(json.dumps(DOCUMENTS["tau2"]["simulations"][0]))
    run["messages"][3]["timestamp"] = iso(1)
    report = ImportReport()
    path = written(tmp_path, run)
    (found,) = import_traces([path], report)
    assert stages(found)[0] == (None, 1, "tool", "absent")
    assert report.anomalies == [f"{path}: messages[3] lasts -2.000 s"]
    assert found.meta["clock_anomalies"] == 1
