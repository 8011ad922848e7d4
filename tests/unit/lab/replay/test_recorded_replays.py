"""Replays read back from their folders, and what is drawn of them."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from pages import assert_well_formed
from replay_folders import ENDPOINTS, EVENTS_OF_TWO, replay_folder

from coresched.errors import InputError
from coresched.lab.replay.events import Admission, Completion, EventLog, Inference
from coresched.lab.replay.perfetto import perfetto_trace
from coresched.lab.replay.record import EVENTS, SUMMARY, read_run
from coresched.lab.replay.recorded import read_recorded
from coresched.lab.replay.run import Ending
from coresched.lab.report.gantt import gantt_chart, gantt_rows
from coresched.lab.report.replay_page import replay_page, reuse_by_turn, verdict
from coresched.lab.units import TimeUnit

COMPLETED = Ending("completed")


def test_metrics_are_those_of_the_summary(tmp_path: Path) -> None:
    folder = replay_folder(tmp_path / "r", ending=COMPLETED)
    run = read_recorded(folder, name="r")
    assert run.metrics == read_run(folder, "--against").metrics
    assert (run.status, run.samples, run.turns, run.models) == ("completed", 2, 4, ("tiny",))
    assert run.workers == ["w0", "w1"]
    assert list(run.events) == EVENTS_OF_TWO


def test_a_killed_replay_is_read_up_to_its_last_whole_event(tmp_path: Path) -> None:
    folder = replay_folder(tmp_path / "r", EVENTS_OF_TWO[:4])
    with (folder / EVENTS).open("a") as file:
        file.write('{"event": "infer')
    run = read_recorded(folder, name="r")
    assert (run.status, len(run.events), run.metrics.makespan_s) == ("unfinished", 4, None)
    page = replay_page([run])
    assert_well_formed(page)
    assert "r did not reach its end (unfinished); 0 of 2 samples completed." in page


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    with EventLog(tmp_path / EVENTS) as log, open("/dev/full", "wb", buffering=0) as full:
        log._file.close()
        log._file = full
        with pytest.raises(OSError, match="No space left on device") as failed:
            log.add(Admission("a", 0.0, 0.0))
    assert failed.value.filename == str(tmp_path / EVENTS)


def test_what_is_no_replay_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no folder of a replay or recording: No such file .*run\.json"):
        read_recorded(tmp_path, name="r")
    with pytest.raises(InputError, match="is no folder of a replay or recording: File name too long"):
        read_recorded(tmp_path / ("n" * 300), name="r")
    empty = replay_folder(tmp_path / "empty", [])
    with pytest.raises(InputError, match="has no events; nothing was replayed"):
        read_recorded(empty, name="r")
    torn = replay_folder(tmp_path / "torn", ending=COMPLETED)
    lines = (torn / EVENTS).read_text().splitlines()
    (torn / EVENTS).write_text("\n".join([lines[0], '{"event": "admission"}', *lines[2:]]) + "\n")
    with pytest.raises(InputError, match=r"events\.jsonl' line 2 is no event of a replay: .*sample"):
        read_recorded(torn, name="r")
    (torn / SUMMARY).write_text("[]")
    with pytest.raises(InputError, match=r"summary\.json' is not what a replay writes"):
        read_recorded(torn, name="r")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("ended_s", "1.5", r"line 3: Inference ends before it began: \[2.0, 1.5\]"),
        ("ended_s", "-5", r"line 3 is no event of a replay: Expected `float` >= 0.0 - at `\$.ended_s`"),
        (
            "prompt_tokens",
            "-1",
            r"line 3 is no event of a replay: Expected `int` >= 0 - at `\$.prompt_tokens`",
        ),
        ("cached_tokens", "-1", r"line 3 is no event .*`\$.cached_tokens`"),
        ("turn", "-1", r"line 3 is no event .*`\$.turn`"),
    ],
)
def test_an_event_that_cannot_have_been_is_refused(
    tmp_path: Path, field: str, value: str, expected: str
) -> None:
    later = msgspec.structs.replace(EVENTS_OF_TWO[2], sent_s=2.0, ended_s=3.0)
    folder = replay_folder(tmp_path / "r", [*EVENTS_OF_TWO[:2], later], ending=COMPLETED)
    events = folder / EVENTS
    events.write_text(re.sub(rf'"{field}":[0-9.]+', f'"{field}":{value}', events.read_text()))
    with pytest.raises(InputError, match=expected):
        read_recorded(folder, name="r")


def test_reuse_is_of_all_prompts_of_a_turn(tmp_path: Path) -> None:
    run = read_recorded(replay_folder(tmp_path / "r"), name="r")
    assert reuse_by_turn(run) == [(1.0, 10 / 40), (2.0, 18 / 54)]
    silent = [*EVENTS_OF_TWO[:2], Inference("<t0>", 0, "w0", 0.0, 2.0, 10, None, 4, None)]
    assert reuse_by_turn(read_recorded(replay_folder(tmp_path / "s", silent), name="s")) == []


def test_bars_are_what_each_trajectory_did() -> None:
    assert gantt_rows(EVENTS_OF_TWO) == {
        "<t0>": [
            (0.0, 2.0, "inference"),
            (2.0, 2.0, "waiting"),
            (2.0, 4.0, "environment"),
            (4.0, 6.0, "inference"),
        ],
        "<t1>": [
            (1.0, 1.5, "failed"),
            (1.5, 4.0, "inference"),
            (4.0, 5.0, "waiting"),
            (5.0, 7.0, "environment"),
            (7.0, 9.0, "inference"),
        ],
    }
    chart = gantt_chart(EVENTS_OF_TWO, TimeUnit(9.0), 9.0)
    assert chart.count("<g>") == 2
    assert chart.count('<path class="inference"') == 2
    assert chart.count('<path class="waiting"') == chart.count('<path class="failed"') == 1
    (waiting,) = [part for part in chart.split("<path ") if part.startswith('class="waiting"')]
    # 58 units of margin; 9 s are 786 units, and the wait is from 4 to 5 s.
    assert 'd="M407.33 ' in waiting
    assert "h87.33v" in waiting


def test_page_compares_runs_and_escapes_their_names(tmp_path: Path) -> None:
    runs = [read_recorded(replay_folder(tmp_path / n, ending=COMPLETED), name=n) for n in ("<a>", "b")]
    page = replay_page(runs)
    assert_well_formed(page)
    assert "b took 9.0 s, which is 0.0 % less than &lt;a&gt;." in page
    assert "&lt;t0&gt;" in page
    assert page.count("<svg") == 2 + 2 + 1 + 2


def test_the_verdict_says_more_or_less_and_names_each_run_that_stopped(tmp_path: Path) -> None:
    late = [*EVENTS_OF_TWO[:-1], Completion("<t1>", 13.5)]
    slow = read_recorded(replay_folder(tmp_path / "slow", late, ending=COMPLETED), name="slow")
    fast = read_recorded(replay_folder(tmp_path / "fast", ending=COMPLETED), name="fast")
    a, b = (read_recorded(replay_folder(tmp_path / n, EVENTS_OF_TWO[:4]), name=n) for n in ("a", "b"))
    unit = TimeUnit(13.5)
    assert verdict([fast, slow], unit) == "slow took 13.5 s, which is 50.0 % more than fast."
    assert verdict([slow, fast], unit) == "fast took 9.0 s, which is 33.3 % less than slow."
    end = "did not reach its end (unfinished); 0 of 2 samples completed."
    assert verdict([a, fast, b], unit) == f"a {end} b {end}"


def test_a_page_of_one_run_has_no_gain_and_no_bar_beyond_its_end(tmp_path: Path) -> None:
    later = [
        msgspec.structs.replace(event, at_s=5.0) if isinstance(event, Admission) else event
        for event in EVENTS_OF_TWO
    ]
    page = replay_page([read_recorded(replay_folder(tmp_path / "r", later, ending=COMPLETED), name="r")])
    assert ">gain<" not in page
    starts = [float(at) for at in re.findall(r"M([0-9.]+) [0-9.]+h", page)]
    assert starts
    assert max(starts) < 860 - 16  # the right margin


def test_a_trace_has_each_request_wait_and_stage_once(tmp_path: Path) -> None:
    run = read_recorded(replay_folder(tmp_path / "r"), name="r")
    events = json.loads(perfetto_trace([run, run]))["traceEvents"]
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["ph"] == "M"}
    assert names == {
        (1, 0): "r: samples",
        (1, 1): "<t0>",
        (1, 2): "<t1>",
        (2, 0): "r: workers",
        (3, 0): "r: samples",
        (3, 1): "<t0>",
        (3, 2): "<t1>",
        (4, 0): "r: workers",
    }
    slices = [one for one in events if one["ph"] == "X" and (one["pid"], one["tid"]) == (1, 2)]
    assert [(one["name"], one["ts"], one["dur"]) for one in slices] == [
        ("turn 1 failed", 1e6, 0.5e6),
        ("turn 1", 1.5e6, 2.5e6),
        ("waits for a slot", 4e6, 1e6),
        ("environment", 5e6, 2e6),
        ("turn 2", 7e6, 2e6),
    ]
    for worker in (endpoint.name for endpoint in ENDPOINTS):
        counts = [
            one["args"]["requests"]
            for one in events
            if one["ph"] == "C" and one["pid"] == 2 and one["name"] == f"{worker} in flight"
        ]
        assert max(counts) >= 1
        assert min(counts) == counts[-1] == 0
