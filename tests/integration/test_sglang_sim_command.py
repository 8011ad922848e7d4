"""`coresched sglang-sim` and its processes, around a stand-in for the server that starts in no time."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from process_table import gone

from coresched.cli.main import main

CHECKOUT = Path(__file__).parents[2]

SERVER = """
import http.server, json, os, subprocess, sys, time
mode = os.environ["STAND_IN"]
print("first line of the log", flush=True)
if mode == "dies":
    sys.exit("boom")
if mode == "raises":
    raise ValueError("no room")
child = subprocess.Popen(["sleep", "600"])
with open(os.environ["STAND_IN_FACTS"] + ".part", "w") as file:
    json.dump({"argv": sys.argv[1:], "environ": dict(os.environ), "pids": [os.getpid(), child.pid],
               "model": sorted(os.listdir(sys.argv[2]))}, file)
os.rename(os.environ["STAND_IN_FACTS"] + ".part", os.environ["STAND_IN_FACTS"])
if mode == "hangs":
    time.sleep(600)
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answers).serve_forever()
"""
ENTRY_POINTS = "[sglang.srt.platforms]\ncoresched-simdevice = coresched_simdevice.platform:activate\n"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Command:
    def __init__(self, folder: Path) -> None:
        self.folder, self.facts, self.port = folder, folder / "facts.json", free_port()
        self.log = folder / "sglang.log"
        package = folder / "packages" / "sglang"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "launch_server.py").write_text(SERVER)
        metadata = package.parent / "coresched-0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Name: coresched\nVersion: 0\n")
        (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
        (folder / "mine").mkdir()
        self.config = folder / "mine" / "config.json"
        self.config.write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"]}))

    @contextmanager
    def started(self, mode: str, *flags: str, to_file: bool = True) -> Iterator["subprocess.Popen[str]"]:
        command: Sequence[str] = (
            *(sys.executable, "-m", "coresched", "sglang-sim", "--model-config", str(self.config)),
            *("--memory", "80GiB", "--weights", "50GiB", "--speed", "10"),
            *(("--log", str(self.log)) if to_file else ()),
            *("--", "--port", str(self.port), *flags),
        )
        paths = (self.folder / "packages", CHECKOUT, CHECKOUT / "adapters")
        environ = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "STAND_IN": mode,
            "STAND_IN_FACTS": str(self.facts),
            "SGLANG_USE_CPU_ENGINE": "1",
        }
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environ, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.terminate()  # which ends its server too

    def pids(self) -> list[int]:
        wait_until(self.facts.exists)
        return list(json.loads(self.facts.read_text())["pids"])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_healthy_server_is_announced_and_ends_with_the_command(command: Command, number: int) -> None:
    with command.started("serves", "--device=cpu", "--page-size", "1") as process:
        assert process.stdout is not None
        announced = process.stdout.readline()
        assert announced.startswith(
            f"coresched sglang-sim: listening on http://127.0.0.1:{command.port}, pools unknown"
        )
        pids = command.pids()
        process.send_signal(number)
        assert process.wait(60) == 0
    assert all(map(gone, pids))
    assert command.log.read_text() == "first line of the log\n"

    facts = json.loads(command.facts.read_text())
    assert facts["argv"][0] == "--model-path"
    assert facts["argv"][1].endswith("/mine")
    assert not Path(facts["argv"][1]).exists()
    assert facts["model"] == ["config.json", "tokenizer.json", "tokenizer_config.json"]
    assert facts["argv"][2:7] == ["--port", str(command.port), "--device=cpu", "--page-size", "1"]
    assert "--device" not in facts["argv"]
    assert "--attention-backend" in facts["argv"]
    assert {"--enable-metrics", "--served-model-name=mine"} < set(facts["argv"])
    environ = facts["environ"]
    assert environ["CORESCHED_SIMDEVICE"] == "1"
    assert environ["CORESCHED_SIMDEVICE_MEMORY"] == "80GiB"
    assert environ["CORESCHED_SIMDEVICE_SPEED"] == "10.0"
    assert "SGLANG_USE_CPU_ENGINE" not in environ


def test_stopped_before_it_is_healthy_nothing_is_left(command: Command) -> None:
    with command.started("hangs") as process:
        pids = command.pids()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert all(map(gone, pids))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel must know of parents that die")
@pytest.mark.parametrize("mode", ["hangs", "serves"])
def test_killed_it_takes_the_server_with_it(command: Command, mode: str) -> None:
    with command.started(mode) as process:
        server, child = command.pids()  # the child is the stand-in's to end
        process.kill()
        process.wait()
        try:
            wait_until(lambda: gone(server))
        finally:
            os.kill(child, signal.SIGKILL)


SPAWNS = """
import multiprocessing, os, sys, time
from coresched_simdevice.lifetime import end_if_orphaned

def spawned(facts):
    end_if_orphaned()  # its parent lives
    with open(facts + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(facts + ".part", facts)
    while multiprocessing.parent_process().is_alive():
        time.sleep(0.05)
    end_if_orphaned()
    time.sleep(600)

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=spawned, args=sys.argv[1:]).start()
"""


def test_a_process_of_a_server_that_is_gone_ends(tmp_path: Path) -> None:
    script, facts = tmp_path / "spawns.py", tmp_path / "facts"
    script.write_text(SPAWNS)
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (CHECKOUT, CHECKOUT / "adapters")))}
    with subprocess.Popen([sys.executable, script, facts], env=environ) as first:
        wait_until(facts.exists)
        first.kill()
    process = int(facts.read_text())
    try:
        wait_until(lambda: gone(process))
    finally:
        if not gone(process):
            os.kill(process, signal.SIGKILL)


def test_a_server_that_dies_gives_its_exit_code_and_last_lines(command: Command) -> None:
    with command.started("dies") as process:
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert errors.splitlines() == [
        "first line of the log",
        "boom",
        "coresched sglang-sim: SGLang ended with exit code 1 before it was healthy",
    ]


@pytest.mark.parametrize("to_file", [True, False])
def test_the_reason_in_the_log_is_said_with_the_exit_code(command: Command, to_file: bool) -> None:
    with command.started("raises", to_file=to_file) as process:
        _, errors = process.communicate(timeout=60)
    assert errors.startswith("first line of the log\nTraceback")
    assert errors.endswith(
        "coresched sglang-sim: SGLang ended with exit code 1 before it was healthy: ValueError: no room\n"
    )


def test_a_name_of_ones_own_wins(command: Command) -> None:
    with command.started("serves", "--served-model-name", "m", "--enable-metrics") as process:
        assert process.stdout is not None
        process.stdout.readline()
        argv = json.loads(command.facts.read_text())["argv"]
    assert argv.count("--enable-metrics") == 1
    assert [flag for flag in argv if flag.startswith("--served-model-name")] == ["--served-model-name"]


def test_a_user_folder_with_a_tokenizer_is_the_model(command: Command) -> None:
    (command.config.parent / "tokenizer.json").write_text("{}")
    with command.started("serves") as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert json.loads(command.facts.read_text())["argv"][:2] == [
            "--model-path",
            str(command.config.parent),
        ]


def sglang_sim(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    code = main(["sglang-sim", *args])
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--memory", "80GiB", "--weights", "nothing"), "--weights is 'nothing'"),
        (
            ("--memory", "80", "--weights", "50"),
            "--memory is '80', less than 1 MiB; give the unit, such as 80GiB",
        ),
        (("--memory", "80GiB", "--weights", "50"), "--weights is '50', less than 1 MiB"),
        (
            ("--memory", "8GiB", "--weights", "9GiB"),
            "--weights is 9 GiB, which leaves nothing of --memory 8 GiB",
        ),
        (("--memory", "80GiB", "--weights", "50GiB", "--step-times", "none"), "--step-times: worker model"),
        (("--memory", "80GiB", "--weights", "50GiB"), "SGLang is not installed"),
    ],
)
def test_a_mistake_is_one_line_before_anything_starts(
    capsys: pytest.CaptureFixture[str], args: Sequence[str], words: str
) -> None:
    code, errors = sglang_sim(capsys, "--model-config", "config.json", *args)
    assert code == 2
    assert errors.startswith(f"coresched sglang-sim: {words}")
    assert errors.count("\n") == 1


def test_the_port_must_be_free_and_the_model_given_once(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(command.folder / "packages"))
    common = ("--model-config", str(command.config), "--memory", "80GiB", "--weights", "50GiB", "--")
    code, errors = sglang_sim(capsys, *common, "--model-path", "x")
    assert (code, errors) == (
        2,
        "coresched sglang-sim: --model-path is given to sglang; give the model as --model-config instead\n",
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", command.port))
        taken.listen()
        code, errors = sglang_sim(capsys, *common, f"--port={command.port}")
    assert code == 2
    assert "in use" in errors
