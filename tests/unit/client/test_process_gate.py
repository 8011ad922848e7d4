"""The gate that environment variables ask for."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coresched.client.errors import SessionLostError
from coresched.client.gate import Gate, process_gate
from coresched.client.gate.process import VARIABLES, close_at_exit, gate_options
from coresched.errors import InputError
from coresched.recording.writer import RecordingError


def test_nothing_asked_for_is_no_gate() -> None:
    assert gate_options({}) is None
    assert gate_options({"CORESCHED_SAMPLE_CONCURRENCY": " ", "CORESCHED_TOKEN": "t"}) is None


def test_every_variable_asks_for_a_gate() -> None:
    good = {
        "ENVIRONMENT_POLICY": "caas",
        "WORKERS": "http://a",
        "ROUTER": "lbch",
        "ADMISSION_POLICY": "submission",
    }
    for variable in VARIABLES[1:]:
        value = good.get(variable.removeprefix("CORESCHED_"), "1")
        with pytest.raises(InputError, match=f"SAMPLE_CONCURRENCY must be set with {variable}:"):
            gate_options({variable: value})


@pytest.mark.parametrize(
    "given",
    [
        {"CORESCHED_HISTORY": "h.jsonl"},
        {"CORESCHED_HISTORY": "h.jsonl", "CORESCHED_ADMISSION_POLICY": "submission"},
        {"CORESCHED_ADMISSION_POLICY": "longest-expected-first"},
    ],
)
def test_a_history_and_the_policy_that_reads_it_go_together(given: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"HISTORY, a file of .* go together; set both, or neither"):
        gate_options({"CORESCHED_SAMPLE_CONCURRENCY": "2", **given})


def test_each_variable_is_an_option() -> None:
    embedded = {
        "CORESCHED_SAMPLE_CONCURRENCY": " 50 ",
        "CORESCHED_ENVIRONMENT_CONCURRENCY": "3",
        "CORESCHED_ENVIRONMENT_POLICY": "fcfs",
        "CORESCHED_RESIDENT_CONCURRENCY": "20",
        "CORESCHED_BAND_S": "10",
        "CORESCHED_BUCKET_S": "0.5",
        "CORESCHED_WORKERS": "http://a:1, http://b:1",
        "CORESCHED_LOAD_BOUND": "1.5",
        "CORESCHED_SLACK": "2",
        "CORESCHED_ROUTER": "sticky-bounded",
        "CORESCHED_RECORD": "runs/monday",
        "CORESCHED_ADMISSION_POLICY": "longest-expected-first",
        "CORESCHED_HISTORY": "history.jsonl",
    }
    assert gate_options(embedded) == {
        "sample_concurrency": 50,
        "environment_concurrency": 3,
        "environment_policy": "fcfs",
        "resident_concurrency": 20,
        "band_s": 10.0,
        "bucket_s": 0.5,
        "workers": ["http://a:1", "http://b:1"],
        "load_bound": 1.5,
        "slack": 2,
        "router": "sticky-bounded",
        "record": "runs/monday",
        "admission_policy": "longest-expected-first",
        "history": "history.jsonl",
    }
    names = ("service", "batch", "ca", "certificate", "key")
    served = {f"CORESCHED_{name.upper()}": f"its {name}" for name in names}
    assert gate_options({"CORESCHED_SAMPLE_CONCURRENCY": "50", **served}) == {
        "sample_concurrency": 50,
        **{name: f"its {name}" for name in names},
    }


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SAMPLE_CONCURRENCY": "0"}, "CORESCHED_SAMPLE_CONCURRENCY must be a whole number .* got '0'"),
        ({"SAMPLE_CONCURRENCY": "many"}, "got 'many'"),
        ({"ENVIRONMENT_POLICY": "lifo"}, "CORESCHED_ENVIRONMENT_POLICY must be caas or fcfs, got 'lifo'"),
        (
            {"RESIDENT_CONCURRENCY": "1.5"},
            "CORESCHED_RESIDENT_CONCURRENCY must be a whole number .* got '1.5'",
        ),
        ({"BAND_S": "nan"}, "CORESCHED_BAND_S must be a number of seconds above 0, got 'nan'"),
        ({"ROUTER": "lbch"}, "CORESCHED_ROUTER is for workers to route among; set CORESCHED_WORKERS too"),
        ({"ROUTER": "ring"}, "CORESCHED_ROUTER must be lbch or sticky-bounded, got 'ring'"),
        ({"SLACK": "2"}, "CORESCHED_SLACK is for workers to route among; set CORESCHED_WORKERS too"),
        ({"SLACK": "-1"}, "CORESCHED_SLACK must be a whole number of requests from 0 to 1000000, got '-1'"),
        ({"SLACK": "1000001"}, "CORESCHED_SLACK must be a whole number of requests from 0 to 1000000"),
        ({"LOAD_BOUND": "0.5"}, "CORESCHED_LOAD_BOUND must be a number of at least 1, got '0.5'"),
        ({"WORKERS": "http://a,,"}, "CORESCHED_WORKERS must be base URLs separated by commas, each once"),
        ({"WORKERS": "http://a,http://a"}, "each once"),
        ({"SERVICE": "h:1", "SAMPLE_CONCURRENCY": ""}, "CORESCHED_SAMPLE_CONCURRENCY must be set"),
        (
            {"ENVIRONMENT_CONCURRENCY": "3", "SAMPLE_CONCURRENCY": ""},
            "CORESCHED_SAMPLE_CONCURRENCY must be set with CORESCHED_ENVIRONMENT_CONCURRENCY",
        ),
        ({"SERVICE": "h:1"}, "CORESCHED_BATCH must be set"),
        ({"SERVICE": "h:1", "BATCH": "b", "WORKERS": "http://a"}, "CORESCHED_WORKERS is a matter of the"),
        ({"BATCH": "b"}, "CORESCHED_BATCH is for a batch at CORESCHED_SERVICE"),
    ],
)
def test_a_bad_variable_is_named(variables: dict[str, str], said: str) -> None:
    given = {"SAMPLE_CONCURRENCY": "5", **variables}
    with pytest.raises(InputError, match=said):
        gate_options({f"CORESCHED_{name}": value for name, value in given.items()})


PROGRAM = """
import os
from coresched.client.gate import process_gate

gate = process_gate()
assert process_gate() is gate
if os.fork() == 0:
    try:
        process_gate()
    except RuntimeError as error:
        print("child:", error, flush=True)
    try:
        gate.sample("a")
    except RuntimeError as error:
        print("child:", error, flush=True)
    os._exit(0)
os.wait()
with gate.sample("a") as sample:
    print("parent:", sample.id)
"""


def test_one_gate_a_process_and_none_in_its_forks(tmp_path: Path) -> None:
    environment: dict[str, Any] = {**os.environ, "CORESCHED_SAMPLE_CONCURRENCY": "2"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["child", "child", "parent"], done.stdout + done.stderr
    assert "capacities would count twice" in lines[0]
    assert "forked from" in lines[1]
    assert done.stderr == ""


@pytest.mark.parametrize(
    "error", [SessionLostError("the service is gone", "UNAVAILABLE"), RecordingError("3 events")]
)
def test_what_is_lost_at_the_end_of_the_process_is_one_line(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Gate(sample_concurrency=1) as gate:
        monkeypatch.setattr(gate, "close", lambda: (_ for _ in ()).throw(error))
        close_at_exit(gate)
        monkeypatch.undo()
    assert [record.getMessage() for record in caplog.records] == [str(error)]


@pytest.mark.parametrize("lost", [False, True])
def test_a_recording_ends_with_the_process(tmp_path: Path, lost: bool) -> None:
    program = (
        "import resource\n"
        "from coresched.client.gate import process_gate\n"
        "gate = process_gate()\n"
        "with gate.sample('a') as sample:\n"
        f"    resource.setrlimit(resource.RLIMIT_FSIZE, ({9 if lost else -1}, -1))\n"
        "    with sample.inference():\n"
        "        pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "CORESCHED_SAMPLE_CONCURRENCY": "1", "CORESCHED_RECORD": str(tmp_path)},
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    if lost:
        assert "that could not be written: File too large" in done.stderr
    else:
        assert done.stderr == ""
        (path,) = tmp_path.iterdir()
        assert path.read_text().splitlines()[-1].startswith('{"event":"completion","sample":"a"')


def test_a_folder_that_cannot_be_recorded_into_is_told_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORESCHED_SAMPLE_CONCURRENCY", "1")
    monkeypatch.setenv("CORESCHED_RECORD", str(tmp_path / "no" / "where"))
    with pytest.raises(InputError, match=r"^CORESCHED_RECORD '.*/no/where': there is no directory"):
        process_gate()
