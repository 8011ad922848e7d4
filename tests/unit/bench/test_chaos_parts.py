"""What a run of chaos is made of: logs that survive a kill, trajectories, faults, processes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from bench.chaos.command import QUICK, RUNS
from bench.chaos.events import EventLog, read_events
from bench.chaos.faults import draw
from bench.chaos.harness import Place
from bench.chaos.servers import CHECKOUT, ENVIRONMENT, Server, free_port
from bench.chaos.settings import trajectory
from bench.chaos.zygote import Ended, Setup, Signal, Start


def test_what_a_process_was_writing_when_it_was_killed_is_left_out(tmp_path: Path) -> None:
    before = time.monotonic()
    log = EventLog(tmp_path / "p.jsonl")
    log.session = 3
    log.write("admitted", "s", asked_at=before)
    log.write("turn_ended", "s", worker="w", prompt_tokens=9, cached_tokens=4)
    with (tmp_path / "p.jsonl").open("ab") as file:
        file.write(b'{"at":1.0,"kind":"fini')
    admitted, ended = read_events(tmp_path)["p"]
    assert (admitted.kind, admitted.sample, admitted.session, admitted.asked_at) == (
        "admitted",
        "s",
        3,
        before,
    )
    assert (ended.worker, ended.prompt_tokens, ended.cached_tokens, ended.asked_at) == ("w", 9, 4, None)
    assert before <= admitted.at <= ended.at <= time.monotonic()


def test_a_line_that_is_no_event_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(b'{"at":1.0,"kind":"no such","session":1}\n')
    with pytest.raises(msgspec.ValidationError):
        read_events(tmp_path)


def test_a_trajectory_follows_from_seed_and_name() -> None:
    stages = trajectory(QUICK, "traj-7")
    assert stages == trajectory(QUICK, "traj-7")
    assert stages != trajectory(msgspec.structs.replace(QUICK, seed=99), "traj-7")
    for name in QUICK.names():
        stages = trajectory(QUICK, name)
        assert QUICK.turns[0] <= len(stages) <= QUICK.turns[1]
        assert [stage.environment_s is None for stage in stages] == [False] * (len(stages) - 1) + [True]


def test_faults_follow_from_the_seed() -> None:
    faults = draw(RUNS["all"], 150, random.Random(5))
    assert faults == draw(RUNS["all"], 150, random.Random(5))
    assert faults != draw(RUNS["all"], 150, random.Random(6))
    assert {target: sum(fault.target == target for fault in faults) for target in RUNS["all"]} == RUNS["all"]
    assert [fault.at_finished for fault in faults] == sorted(fault.at_finished for fault in faults)
    assert all(0 <= fault.at_finished < 135 for fault in faults)


def test_the_zygote_tells_who_ended_and_kills_the_rest_in_the_end(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"  # harnesses call there for their grace period
    place = Place(service=nobody, workers=[], settings=QUICK)
    with subprocess.Popen(
        [sys.executable, "-m", "bench.chaos.zygote"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
        cwd=CHECKOUT,
    ) as zygote:
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        for order in (
            Setup(str(tmp_path), place),
            Start("a"),
            Start("b"),
            Signal("a", signal.SIGKILL),
            Signal("nobody", signal.SIGKILL),
        ):
            zygote.stdin.write(msgspec.json.encode(order) + b"\n")
        zygote.stdin.flush()
        ended = msgspec.json.decode(zygote.stdout.readline(), type=Ended)
        assert (ended.process, ended.code) == ("a", -signal.SIGKILL)
        assert ended.at <= time.monotonic()
        zygote.stdin.close()
        assert zygote.stdout.read() == b""  # "b" would hold neither pipe open: it was killed
        assert zygote.wait(20) == 0


async def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    server = Server("serve", ["--journal", str(tmp_path)], tmp_path / "err")
    with pytest.raises(RuntimeError, match="--journal"):
        await server.start()
    server.kill()


async def test_a_server_that_ends_by_itself_is_noticed(tmp_path: Path) -> None:
    server = Server("serve", ["--journal", "none"], tmp_path / "err")
    await server.start()
    try:
        server.check_alive()
        address = server.address
        await server.kill_and_restart()
        assert server.address == address
        assert len(server.restarts) == 1
        assert server.cpu_s > 0
        assert await server.stop() == 0
        await server.start()
        assert server._process is not None
        os.kill(server._process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, server._process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(RuntimeError, match="has ended"):
            server.check_alive()
    finally:
        server.kill()
