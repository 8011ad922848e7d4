"""`coresched serve --journal`: restarts, a second service, refusals, and a disk that runs full."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from served import CHECKOUT, served

from coresched.cli.main import main
from coresched.v1 import router_pb2 as pb
from coresched.v1.router_pb2_grpc import RouterStub


async def registered(address: str, number: int) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        await RouterStub(channel).RegisterWorker(
            pb.RegisterWorkerRequest(request_id=f"id {number}", worker=f"w{number}"), timeout=20
        )


async def registered_all(address: str, answered: list[int]) -> None:
    for number in range(10_000):
        await registered(address, number)
        answered.append(number)


async def listed(address: str) -> list[str]:
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await RouterStub(channel).ListWorkers(pb.ListWorkersRequest(), timeout=20)
        return [worker.worker for worker in answer.workers]


async def test_a_killed_and_a_stopped_service_go_on(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with served("--journal", str(journal)) as (address, process):
        await registered(address, 1)
        process.kill()
    with served("--journal", str(journal)) as (address, process):
        assert await listed(address) == ["w1"]
        await registered(address, 1)
        await registered(address, 2)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 20) == 0
    assert os.listdir(tmp_path) == ["journal"]
    with served("--journal", str(journal), "--worker", "w0") as (address, process):
        assert await listed(address) == ["w0", "w1", "w2"]
        process.terminate()
        assert process.communicate(timeout=20)[1] == (
            "coresched serve: recovered 0 open batches with 0 samples, 0 closed ones and 3 workers "
            "from 2 facts\n"
        )


async def test_by_default_the_journal_is_in_the_working_directory_and_for_one_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with served("--journal", "coresched-journal.sqlite3"):
        assert await asyncio.to_thread(main, ["serve", "--listen", "127.0.0.1:0"]) == 2
        assert capsys.readouterr().err == (
            "coresched serve: --journal 'coresched-journal.sqlite3' is in use by another coresched serve; "
            "stop that one or give another --journal FILE\n"
        )
    with served("--journal", "none"):
        pass
    assert os.listdir(tmp_path) == ["coresched-journal.sqlite3"]


def test_what_is_no_journal_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a journal\n" * 100)
    for journal, says in ((path, "is not a coresched journal"), (tmp_path, "is a directory")):
        assert main(["serve", "--listen", "127.0.0.1:0", "--journal", str(journal)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"coresched serve: --journal {str(journal)!r} {says}")
        assert err.count("\n") == 1
    assert path.read_text() == "not a journal\n" * 100


async def test_a_full_disk_ends_the_service_and_loses_nothing_it_answered(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    little_room = ["bash", "-c", 'ulimit -f 97 && exec "$@"', "bash"]  # KiB a file
    command = [sys.executable, "-m", "coresched", "serve", "--listen", "127.0.0.1:0", "--grace-s", "1"]
    with subprocess.Popen(
        [*little_room, *command, "--journal", str(journal), "--log-level", "error"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        answered: list[int] = []
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await registered_all(address, answered)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        _, err = await asyncio.to_thread(process.communicate, timeout=20)
        assert process.returncode == 1
    assert err.startswith(f"coresched serve: --journal {str(journal)!r} cannot be written: ")
    assert err.count("\n") == 1
    assert len(answered) > 5
    with served("--journal", str(journal)) as (address, _):
        assert set(await listed(address)) >= {f"w{n}" for n in answered}
