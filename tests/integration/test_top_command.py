"""`coresched top` against a real service: one frame, JSON, and the live view in a terminal."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from served import CHECKOUT, served

from coresched.cli.main import main
from coresched.v1 import batches_pb2 as pb
from coresched.v1.batches_pb2_grpc import BatchesStub


async def opened(address: str, batch: str = "eval") -> None:
    """A batch of three samples, one of them in a turn."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = BatchesStub(channel)
        options = pb.BatchOptions(sample_concurrency=1)
        opening = pb.OpenBatchRequest(request_id=batch, batch=batch, options=options, grace_s=600)
        session = (await stub.OpenBatch(opening)).session
        of = {"session": session}
        samples = ["a", "b", "c"]
        await stub.SubmitSamples(pb.SubmitSamplesRequest(request_id=f"{batch} 1", samples=samples, **of))
        await stub.AwaitAdmission(pb.AwaitAdmissionRequest(request_id=f"{batch} 2", sample="a", **of))
        await stub.StartTurn(pb.StartTurnRequest(request_id=f"{batch} 3", sample="a", **of))


def top(*arguments: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "coresched", "top", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


async def test_one_frame_and_json() -> None:
    with served("--worker", "w0", "--worker", "w1") as (address, _):
        await opened(address)
        for columns in (80, 140):
            done = await asyncio.to_thread(top, address, "--once", columns=columns)
            assert (done.returncode, done.stderr) == (0, "")
            lines = done.stdout.splitlines()
            assert lines[0].startswith(f"coresched top  {address}  1 open batch  2 workers")
            assert lines[1] == "─" * columns
            assert lines[2].startswith("eval ")
            assert "0/3 ended, 0%" in lines[2]
            assert lines[3].count("▚") == columns // 3 + (columns % 3 > 0)
            assert lines[4] == "▚ 1 inference  2 open"
            assert max(map(len, lines)) == columns
        done = await asyncio.to_thread(top, address, "--json")
    shown = json.loads(done.stdout)
    assert shown["target"] == address
    (batch,) = shown["batches"]
    assert (batch["batch"], batch["samples"], batch["inference"], batch["makespan_s"]) == ("eval", 3, 1, None)
    assert batch["options"]["environment_concurrency"] is None
    assert batch["admitted_by_turns"] == [1, 0, 0, 0, 0, 0, 0, 0]
    assert sum(worker["in_flight"] for worker in shown["workers"]) == 1
    assert {worker["state"] for worker in shown["workers"]} == {"WORKER_STATE_ROUTABLE"}
    assert (shown["beta"], shown["imbalance"], shown["load_bound"]) == (None, None, 1.25)


async def test_a_tenant_sees_its_own_with_its_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([{"tenant": "t", "token": "0123456789abcdef"}]))
    with served("--tokens", str(tokens)) as (address, _):
        assert (
            await asyncio.to_thread(top, address, "--once", "--token", "0123456789abcdef")
        ).returncode == 0
        refused = await asyncio.to_thread(top, address, "--once")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"coresched top: target {address} refuses the call: metadata author")
    assert refused.stderr.count("\n") == 1


def test_mistakes_and_a_service_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{nobody.getsockname()[1]}"
        assert main(["top", target, "--once"]) == 1
    assert capsys.readouterr().err.startswith(f"coresched top: no answer from {target}: ")
    assert main(["top", target]) == 2
    assert "stdout must be a terminal" in capsys.readouterr().err
    assert main(["top", target, "--once", "--ca", str(tmp_path / "none.pem")]) == 2
    assert capsys.readouterr().err.startswith("coresched top: --ca ")


class Terminal:
    """The process's terminal, as whoever sits there sees and uses it."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self._screen = screen
        self._seen = ""

    def wait_for(self, text: str) -> None:
        """Return once the text was written after what was waited for before."""
        deadline = time.monotonic() + 60
        while text not in self._seen:
            ready, _, _ = select.select([self._screen], [], [], deadline - time.monotonic())
            assert ready, f"no {text!r} in {self._seen[-2000:]!r}"
            self._seen += os.read(self._screen, 65536).decode(errors="replace")
        self._seen = self._seen.partition(text)[2]

    def type(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def ended(self) -> int:
        """The exit code; what is written meanwhile is read, else the process would wait."""
        while self.process.poll() is None:
            if select.select([self._screen], [], [], 0.1)[0]:
                self._seen += os.read(self._screen, 65536).decode(errors="replace")
        return self.process.returncode


@contextmanager
def live(address: str) -> Iterator[Terminal]:
    screen, inside = os.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(inside)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "TERM": "xterm"}
    command = [sys.executable, "-m", "coresched", "top", address]
    with subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environment) as process:
        try:
            yield Terminal(process, screen)
            assert termios.tcgetattr(inside) == before
        finally:
            process.kill()
            os.close(screen)
            os.close(inside)


async def test_the_live_view_outlives_the_service_until_q(tmp_path: Path) -> None:
    journal = ("--journal", str(tmp_path / "journal"))
    with served(*journal) as (address, process):
        await opened(address, "first life")
        with live(address) as terminal:
            await asyncio.to_thread(terminal.wait_for, "first life")
            process.kill()
            await asyncio.to_thread(terminal.wait_for, "reconnecting")
            with served(*journal, listen=address):
                await opened(address, "second life")
                await asyncio.to_thread(terminal.wait_for, "second life")
                async with grpc.aio.insecure_channel(address) as channel:
                    await BatchesStub(channel).CloseBatch(
                        pb.CloseBatchRequest(request_id="c", batch="second life")
                    )
                await asyncio.to_thread(terminal.wait_for, "closed")
                terminal.type(b"xq")
                assert await asyncio.to_thread(terminal.ended) == 0


async def test_ctrl_c_ends_it_while_there_is_no_service() -> None:
    with live("127.0.0.1:1") as terminal:
        await asyncio.to_thread(terminal.wait_for, "reconnecting")
        terminal.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(terminal.ended) == 0
