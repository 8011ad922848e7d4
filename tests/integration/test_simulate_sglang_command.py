"""`coresched simulate --worker sglang` and its processes, around a stand-in for SGLang."""

import json
import os
import signal
from pathlib import Path

import pytest
from process_table import gone
from simulate_command import SimulateCommand

from coresched.cli.main import main

# As much of SGLang as is used until an engine boots, which then does what STAND_IN says.
PACKAGE = {
    "__init__.py": "",
    "version.py": "__version__ = '0.0.stand-in'",
    "srt/__init__.py": "",
    "srt/plugins.py": "def load_plugins(): pass",
    "srt/managers/__init__.py": "",
    "srt/managers/scheduler.py": """
import os, sys, time
class Scheduler: pass
""",
    "srt/models/__init__.py": "",
    "srt/models/registry.py": "def import_model_classes(name): pass",
    "srt/server_args.py": """
class PortArgs: pass
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", required=True)
        parser.add_argument("--schedule-policy", choices=["fcfs", "lpm", "routing-prefix"], default="fcfs")
        parser.add_argument("--context-length", type=int)
        parser.add_argument("--tp-size", "--tp", type=int, default=1)
        parser.add_argument("--dp-size", "--dp", type=int, default=1)
        parser.add_argument("--disaggregation-mode", default="null")
        parser.add_argument("--enable-lora", action="store_true")
        parser.add_argument("--enable-mixed-chunk", action="store_true")
""",
    "srt/runtime_context.py": """
import os, time
with open(os.environ["STAND_IN_FACTS"], "a") as file:
    file.write(f"{os.getpid()} {os.getppid()}\\n")
print("an engine's last words", flush=True)
if os.environ["STAND_IN"] == "dies":
    os._exit(7)
if os.environ["STAND_IN"] == "raises":
    raise RuntimeError("no such kernel")
time.sleep(600)
""",
}
ENTRY_POINTS = "[sglang.srt.platforms]\ncoresched-simdevice = coresched_simdevice.platform:activate\n"


@pytest.fixture
def command(tmp_path: Path) -> SimulateCommand:
    return SimulateCommand(tmp_path, "sglang", PACKAGE, ENTRY_POINTS)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--schedule-policy", "nonsense"], "argument --schedule-policy: invalid choice: 'nonsense'"),
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--tp", "4"], "--tp-size is 4; an engine in virtual time has one rank"),
        (["--dp", "2"], "--dp-size is 2; give more --workers instead"),
        (["--enable-lora"], "--enable-lora is given"),
        (["--model-path", "x"], "--model-path is given to sglang; give the model as --model-config instead"),
    ],
)
def test_flags_that_cannot_be_used_are_refused_before_anything_boots(
    command: SimulateCommand, flags: list[str], said: str
) -> None:
    code, errors = command.run("dies", flags)
    assert code == 2
    assert errors.startswith("coresched simulate: ")
    assert said in errors
    assert errors.count("\n") == 1
    assert not command.facts.exists()


def test_a_worker_that_dies_is_named_with_its_exit_code_and_last_words(command: SimulateCommand) -> None:
    code, errors = command.run("dies")
    assert code == 1
    *said, last = errors.splitlines()
    assert said[-1] == "an engine's last words"
    assert last == "coresched simulate: worker 0 (SGLang) ended with exit code 7"
    assert all(map(gone, command.pids()))


def test_a_worker_that_fails_says_why(command: SimulateCommand) -> None:
    code, errors = command.run("raises")
    assert code == 1
    last = errors.splitlines()[-1]
    assert last == "coresched simulate: worker 0 (SGLang) failed: RuntimeError: no such kernel"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_processes(command: SimulateCommand, number: int, code: int) -> None:
    with command.start("hangs") as process:
        pids = command.pids()
        assert len(pids) == 2
        process.send_signal(number)
        assert process.wait(60) == code
    assert all(map(gone, pids))
    assert "coresched-report.html" not in os.listdir(command.folder)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--memory", "80GiB"], "--memory is given, which is for engines; add --worker sglang"),
        (["--", "--tp", "2"], "--tp stands behind --, as an engine's flags do; add --worker sglang"),
        (["--worker", "sglang", "--memory", "80GiB"], "--model-config is not given; --worker sglang needs"),
        (
            [
                *("--worker", "sglang", "--model-config", "config.json", "--memory", "80GiB"),
                *("--weights", "50GiB", "--worker-model", "h20-tp4-hybrid"),
            ],
            "--worker-model is h20-tp4-hybrid; with --worker sglang the pools are SGLang's",
        ),
        (
            [
                *("--worker", "sglang", "--model-config", "config.json", "--memory", "80GiB"),
                *("--weights", "90GiB"),
            ],
            "--weights is 90 GiB, which leaves nothing of --memory 80 GiB",
        ),
        (
            [
                *("--worker", "sglang", "--model-config", "config.json", "--memory", "80GiB"),
                *("--weights", "50GiB"),
            ],
            "SGLang is not installed for",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(
    command: SimulateCommand,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(command.folder)
    assert main(["simulate", "t.jsonl", *arguments]) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert errors.count("\n") == 1


def test_runs_are_chosen_by_name(
    command: SimulateCommand, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(command.folder)
    assert main(["simulate", "t.jsonl", "--json", "--runs", "coordinated,lbch"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["name"] for run in runs] == ["lbch", "coordinated"]
    assert main(["simulate", "t.jsonl", "--runs", "lbch"]) == 0
    assert "x1.00" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["simulate", "t.jsonl", "--runs", "lbch,fast"])
    assert "'fast' is no run; there are baseline" in capsys.readouterr().err
