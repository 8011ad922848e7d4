"""`coresched demo --engine vllm`: real servers, and what is left of them."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from integration.engines.environment import CHECKOUT, COMPILED_ONCE
from process_table import descendants, wait_until_gone

pytestmark = [pytest.mark.vllm, pytest.mark.by_hand]


def demo(python: Path | str, *options: str) -> list[str]:
    return [str(python), "-m", "coresched", "demo", "--engine", "vllm", *options]


@contextmanager
def booting(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], set[int]]]:
    """A demo whose servers boot, with their first processes; all must be gone in the end."""
    environment = {**os.environ, **COMPILED_ONCE}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        until = time.monotonic() + 120
        while len(servers := descendants(running.pid)) < 2:
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
        try:
            yield running, servers
        finally:
            running.terminate()
            running.wait(120)
    wait_until_gone(servers)


def test_both_runs_come_to_their_end_and_are_reported(vllm_python: Path, tmp_path: Path) -> None:
    report = tmp_path / "demo.html"
    command = demo(vllm_python, "--samples", "6", "--json", "--report", str(report))
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:  # a path that vLLM's sockets have room for
        environment = {**os.environ, **COMPILED_ONCE, "TMPDIR": scratch}
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
        assert not list(Path(scratch).glob("coresched-demo-*"))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    told = json.loads(done.stdout)
    baseline, coordinated = told["runs"]
    assert (baseline["name"], coordinated["name"]) == ("baseline", "coordinated")
    for run in (baseline, coordinated):
        metrics = run["metrics"]
        assert (metrics["completed_samples"], metrics["failed_requests"]) == (6, 0)
        assert metrics["first_turn_cached_tokens"] == 0  # the caches are emptied in between
        assert all(metrics["turns_by_worker"].values())
    assert coordinated["metrics"]["cache_reuse"] > 0
    assert "baseline" in report.read_text()


def test_ctrl_c_while_servers_boot_leaves_nothing_behind(vllm_python: Path) -> None:
    with booting(demo(vllm_python, "--json")) as (running, _):
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert (running.returncode, out) == (130, "")
    assert err == "coresched demo: interrupted, nothing was written\n"


def test_a_server_that_dies_is_named_behind_the_end_of_its_log(vllm_python: Path) -> None:
    with booting(demo(vllm_python, "--json")) as (running, servers):
        os.kill(min(servers), signal.SIGKILL)
        out, err = running.communicate(timeout=120)
    assert (running.returncode, out) == (1, "")
    assert err.splitlines()[-1].startswith("coresched demo: vLLM server vllm-")
    assert err.splitlines()[-1].endswith(" ended with signal 9")


def test_what_cannot_work_is_one_line_and_nothing_is_started(vllm_python: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        mistakes = (
            (demo(sys.executable), "vLLM is not installed for"),
            (
                demo(vllm_python, "--port", str(port)),
                f"--port {port}: {port} cannot be used (Address",
            ),
            (demo(vllm_python, "--workers", "3"), "--workers shapes the simulated demo; leave it out"),
        )
        for command, said in mistakes:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=CHECKOUT)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
            assert said in done.stderr
