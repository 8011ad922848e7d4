"""`demo` and `simulate` as a person meets them: output, files, exit codes, one-line errors."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from coresched.cli.main import main
from coresched.lab.policies import LEFT_OUT, policy_lines
from coresched.lab.simulator.model import load_worker_model
from coresched.lab.simulator.settings import (
    ADMISSION_POLICIES,
    ENVIRONMENT_POLICIES,
    EVICTION_POLICIES,
    ORDERS,
    POOL_POLICIES,
    ROUTERS,
)
from coresched.trajectory.generator import generate
from coresched.trajectory.writer import write_trajectories

RUNS = ["baseline", "decoupled", "balanced-pools", "lbch", "routing-prefix", "coordinated"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trace(folder: Path) -> Path:
    path = folder / "traces.jsonl"
    write_trajectories(path, generate("terminal", 30, 1))
    return path


def test_demo_prints_a_table_and_writes_the_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in RUNS)
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "</html>" in (folder / "coresched-demo.html").read_text()
    assert os.listdir(folder) == ["coresched-demo.html"]


def test_every_policy_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["simulate", "--list-policies"])
    assert exit_.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    named = [line.split()[0] for line in lines if line.startswith("  ")]
    left_out = [system for system, *_ in LEFT_OUT]
    kept = [*ADMISSION_POLICIES, *ROUTERS, *ORDERS, *ENVIRONMENT_POLICIES, *EVICTION_POLICIES, *POOL_POLICIES]
    assert named == [*kept, *left_out]
    kinds = ["admission:", "routing:", "worker:", "environment:", "eviction:", "pools:"]
    assert [line for line in lines if not line.startswith("  ")] == [*kinds, "left out, not found precisely:"]


def test_policies_are_wrapped_to_a_terminal_below_their_rules(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(SystemExit):
        main(["simulate", "--list-policies"])
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert " ".join(out.split()) == " ".join(" ".join(policy_lines()).split())
    place = out.splitlines()[1].index("in the order of submission")
    below = [line for line in out.splitlines() if line.startswith(" " * 3)]
    assert below
    assert all(len(line) - len(line.lstrip()) == place for line in below)


def test_only_the_trace_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate"])
    assert "the following arguments are required: TRACE (see" in capsys.readouterr().err


def test_simulate_json_is_the_comparison_and_nothing_else(
    trace: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(trace), "--workers", "2", "--environment-concurrency", "3", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["name"] for run in runs] == RUNS
    for run in runs:
        assert {"makespan_s", "cache_reuse", "new_prefill_tokens", "tail_s", "lower_bound_s"} <= run.keys()
    assert runs[0]["settings"]["sample_concurrency"] == 3
    assert runs[1]["makespan_s"] < runs[0]["makespan_s"]
    assert os.listdir(folder) == ["traces.jsonl"]


def test_options_reach_the_runs(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--sample-concurrency",
        "7",
        "--state-ratio",
        "0.5",
        "--label-capacity",
        "9",
        "--load-bound",
        "2",
    ]
    options += [
        "--band-s",
        "5",
        "--bucket-s",
        "2",
        "--seed",
        "4",
        "--workers",
        "3",
        "--environment-concurrency",
        "2",
    ]
    assert main(["simulate", str(trace), "--json", *options]) == 0
    settings = json.loads(capsys.readouterr().out)["runs"][-1]["settings"]
    expected = {
        "sample_concurrency": 7,
        "state_ratio": 0.5,
        "label_capacity": 9,
        "load_bound": 2.0,
        "band_s": 5.0,
        "bucket_s": 2.0,
        "seed": 4,
        "workers": 3,
        "environment_concurrency": 2,
    }
    assert {name: settings[name] for name in expected} == expected


def test_report_goes_where_it_is_told(trace: Path, folder: Path) -> None:
    assert main(["simulate", str(trace), "--json", "--report", "mine.html"]) == 0
    assert sorted(os.listdir(folder)) == ["mine.html", "traces.jsonl"]
    assert (folder / "mine.html").stat().st_mode & 0o044


def test_absent_durations_are_refused_unless_assumed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "chat.jsonl"
    write_trajectories(path, generate("tool-user", 5, 1))
    assert main(["simulate", str(path)]) == 2
    assert "--absent-environment-s" in one_line(capsys)
    assert main(["simulate", str(path), "--json", "--absent-environment-s", "0"]) == 0


def test_a_model_file_of_ones_own(trace: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from coresched.lab.simulator.model import load_worker_model

    model = msgspec.structs.replace(load_worker_model(), name="mine", pool_tokens=500_000)
    (folder / "mine.json").write_bytes(msgspec.json.encode(model))
    assert main(["simulate", str(trace), "--json", "--worker-model", "mine.json"]) == 0
    assert json.loads(capsys.readouterr().out)["worker_model"] == "mine"


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "bad.jsonl"),
        ("", "bad.jsonl"),
        ("\n\n", "bad.jsonl"),
        (
            '{"id": "a", "initial_prompt_tokens": 1, "turns": [{"output_tokens": -5}]}',
            "turns[0].output_tokens is -5",
        ),
    ],
)
def test_bad_traces_are_refused_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    if text is not None:
        (folder / "bad.jsonl").write_text(text)
    assert main(["simulate", "bad.jsonl"]) == 2
    assert said in one_line(capsys)
    assert "coresched-report.html" not in os.listdir(folder)


def test_broken_json_is_placed(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = trace.read_text().splitlines()
    lines[6] = lines[6][:40]
    trace.write_text("\n".join(lines))
    assert main(["simulate", str(trace)]) == 2
    assert "line 7" in one_line(capsys)


def test_the_report_is_not_written_over_a_worker_model(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.json"
    model.write_bytes(msgspec.json.encode(load_worker_model()))
    before = model.read_bytes()
    assert main(["simulate", str(trace), "--worker-model", str(model), "--report", str(model)]) == 2
    assert "is an input of this command; choose another name" in capsys.readouterr().err
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--sample-concurrency", "0", "at least 1"),
        ("--environment-concurrency", "0", "at least 1"),
        ("--workers", "two", "'two' is not an integer"),
        ("--load-bound", "0.9", "at least 1"),
        ("--load-bound", "nan", "not finite"),
        ("--state-ratio", "0", "greater than 0"),
        ("--band-s", "-1", "greater than 0"),
        ("--absent-environment-s", "-0.5", "at least 0"),
        ("--worker-model", "nowhere.json", "shipped: h20-tp4-hybrid"),
        ("--report", "no/such/folder/x.html", "create it first"),
        ("--report", ".", "is a directory"),
        ("--report", "traces.jsonl", "is an input of this command"),
        ("--report", "/dev/null", "not a regular file"),
        ("--report", "x" * 300, "cannot be written"),
        ("--workers", "2147483648", "too large"),
        ("--workers", "5000", "from 1 to 1024"),
        ("--environment-concurrency", "9" * 30, "at most 18 digits"),
        ("--state-ratio", "1e308", "from 1e-09 to 1000000000"),
        ("--band-s", "5e-324", "from 1e-09"),
        ("--bucket-s", "1e-300", "from 1e-09"),
        ("--seed", "nan", "is not an integer"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    trace: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, said: str
) -> None:
    try:
        code = main(["simulate", str(trace), option, value])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    assert code == 2
    err = one_line(capsys)
    assert re.split("[-_]", option.lstrip("-"))[0] in err
    assert said in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "truncated"),
        ("{}", "missing required field"),
        ('{"pool_tokens": -1}', "pool_tokens"),
        ('{"x": 1}', "x"),
    ],
)
def test_bad_model_files_are_refused(
    trace: Path, folder: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (folder / "model.json").write_text(text)
    assert main(["simulate", str(trace), "--worker-model", "model.json"]) == 2
    err = one_line(capsys)
    assert "model.json" in err
    assert said in err


def read_by(descriptors: Path) -> list[str]:
    """The files that are open there; none while the process is not quite there, or is about to go."""
    try:
        return [os.path.realpath(each) for each in descriptors.iterdir()]
    except OSError:
        return []


def until_open(process: subprocess.Popen[str], path: Path) -> None:
    """Waits until the process reads the file, and so is past its imports."""
    descriptors = Path("/proc", str(process.pid), "fd")
    until = time.monotonic() + 60
    while str(path) not in read_by(descriptors):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="sees by /proc what the command reads")
def test_ctrl_c_leaves_no_report(folder: Path) -> None:
    path = folder / "many.jsonl"
    write_trajectories(path, generate("swe", 4000, 1))
    command = [sys.executable, "-m", "coresched", "simulate", str(path), "--environment-concurrency", "8"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        until_open(process, path)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (out, err) == ("", "coresched simulate: interrupted, nothing was written\n")
    assert os.listdir(folder) == ["many.jsonl"]


@pytest.mark.parametrize(
    "command", [["demo"], ["trace", "show", "traces.jsonl"], ["simulate", "traces.jsonl", "--json"]]
)
def test_a_closed_or_full_output_is_no_traceback(trace: Path, command: list[str]) -> None:
    coresched = f"{sys.executable} -m coresched {' '.join(command)}"
    closed = subprocess.run(["bash", "-c", f"{coresched} >&-"], capture_output=True, text=True, timeout=60)
    assert (closed.returncode, closed.stderr) == (0, "")
    full = subprocess.run(
        ["bash", "-c", f"{coresched} >/dev/full"], capture_output=True, text=True, timeout=60
    )
    assert full.returncode == 1
    assert full.stderr == f"coresched {command[0]}: the output cannot be written: No space left on device\n"


def test_a_link_to_a_report_stays_a_link(trace: Path, folder: Path) -> None:
    (folder / "real.html").write_text("old")
    (folder / "real.html").chmod(0o640)
    (folder / "link.html").symlink_to("real.html")
    assert main(["simulate", str(trace), "--json", "--report", "link.html"]) == 0
    assert (folder / "link.html").is_symlink()
    assert "</html>" in (folder / "real.html").read_text()
    assert (folder / "real.html").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_writing_leaves_nothing_behind(folder: Path, number: signal.Signals) -> None:
    command = [
        sys.executable,
        "-m",
        "coresched",
        "trace",
        "generate",
        "swe",
        "--count",
        "1000000",
        "--output",
        "big.jsonl",
    ]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        while not os.listdir(folder) and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else 143)
    assert os.listdir(folder) == []


def test_the_verdict_names_a_shorter_run_than_the_last(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # One sample at a time after the baseline: everything later is slower than the baseline.
    assert main(["simulate", str(trace), "--environment-concurrency", "8", "--sample-concurrency", "1"]) == 0
    assert "the shortest is baseline" in capsys.readouterr().out.replace("\n", " ")


def test_help_of_every_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["demo"], ["simulate"], ["plan"], ["serve"], ["trace", "show"], ["trace", "generate"]):
        with pytest.raises(SystemExit) as stopped:
            main([*command, "--help"])
        assert stopped.value.code == 0
        out = capsys.readouterr().out
        assert f"coresched {' '.join(command)}" in out.split("xample")[-1]
