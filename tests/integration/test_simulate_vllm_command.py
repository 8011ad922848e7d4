"""`coresched simulate --worker vllm` where vLLM cannot be had, or does not load."""

import os
import signal
from pathlib import Path

import pytest
from process_table import gone
from simulate_command import SimulateCommand

from coresched.cli.main import main

# vLLM is imported in the process from which the engines would be forked.
PACKAGE = {
    "__init__.py": """
import os, time
with open(os.environ["STAND_IN_FACTS"], "a") as file:
    file.write(f"{os.getpid()} {os.getppid()}\\n")
print("its last words", flush=True)
if os.environ["STAND_IN"] == "dies":
    os._exit(7)
if os.environ["STAND_IN"] == "raises":
    raise ImportError("libcudart.so is not there")
time.sleep(600)
""",
}
DEVICE = ("--worker", "vllm", "--model-config", "config.json", "--memory", "80GiB")


@pytest.fixture
def command(tmp_path: Path) -> SimulateCommand:
    return SimulateCommand(tmp_path, "vllm", PACKAGE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--worker", "vllm", "--memory", "80GiB"], "--model-config is not given; --worker vllm needs it"),
        ([*DEVICE, "--weights", "90GiB"], "--weights is 90 GiB, which leaves nothing of --memory 80 GiB"),
        ([*DEVICE, "--weights", "50GiB", "--worker-model", "x"], "with --worker vllm the pools are vLLM's"),
        ([*DEVICE, "--weights", "50GiB"], "vLLM is not installed for"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_one_line(
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


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("dies", "the process that loads vLLM ended with exit code 7"),
        ("raises", "the process that loads vLLM failed: ImportError: libcudart.so is not there"),
    ],
)
def test_a_vllm_that_does_not_load_is_told_with_its_last_words(
    command: SimulateCommand, mode: str, said: str
) -> None:
    code, errors = command.run(mode)
    assert code == 1
    lines = errors.splitlines()
    assert lines[-1] == f"coresched simulate: {said}"
    assert len(lines) > 1
    assert all(map(gone, command.pids()[:1]))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing_behind(command: SimulateCommand, number: int, code: int) -> None:
    before = {*os.listdir(command.folder), "facts"}
    with command.start("hangs") as process:
        loading, _ = command.pids()
        process.send_signal(number)
        assert process.wait(60) == code
    assert gone(loading)
    assert set(os.listdir(command.folder)) == before
