"""`coresched serve` as a process: what it prints, how it stops, and one line for each mistake."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from served import served

from coresched.cli.main import main
from coresched.v1 import router_pb2 as pb
from coresched.v1.router_pb2_grpc import RouterStub

ROUTE = pb.RouteStreamRequest(route=pb.RouteRequest(request_id="a", label="k"))
RELEASE = pb.ReleaseRequest(request_id="b", label="k", worker="w0")


async def refused(address: str) -> None:
    """Returns once the server takes no new connection."""
    host, port = address.rsplit(":", 1)
    while True:
        try:
            (await asyncio.open_connection(host, int(port)))[1].close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            pass  # was in the queue of the socket that is being closed
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_health_and_drains_the_streams(number: signal.Signals) -> None:
    with served("--worker", "w0", "--grace-s", "60") as (address, process):
        async with grpc.aio.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await health.read()).status == health_pb2.HealthCheckResponse.SERVING
            stream = RouterStub(channel).RouteStream()
            await stream.write(ROUTE)
            assert (await stream.read()).route.worker == "w0"
            process.send_signal(number)
            assert (await health.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            health.cancel()
            await asyncio.wait_for(refused(address), 20)
            await stream.write(pb.RouteStreamRequest(release=RELEASE))
            assert (await stream.read()).HasField("release")
            assert process.poll() is None
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() is grpc.StatusCode.OK
        assert await asyncio.to_thread(process.wait, 20) == 0
        assert process.communicate() == ("", "")


@pytest.mark.parametrize(("grace_s", "signals"), [("0.2", 1), ("600", 2)])
async def test_the_grace_period_or_a_second_signal_ends_a_stream(grace_s: str, signals: int) -> None:
    with served("--worker", "w0", "--grace-s", grace_s) as (address, process):
        async with grpc.aio.insecure_channel(address) as channel:
            stream = RouterStub(channel).RouteStream()
            await stream.write(ROUTE)
            await stream.read()
            for _ in range(signals):
                process.terminate()
                await asyncio.wait_for(refused(address), 20)
            with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
                await stream.read()
            assert await asyncio.to_thread(process.wait, 20) == 0


async def test_a_socket_left_behind_is_taken_and_one_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with served(listen="unix:s") as (address, process):
        assert address == "unix:s"
        assert main(["serve", "--listen", "unix:s"]) == 2
        assert capsys.readouterr().err == (
            "coresched serve: --listen unix:s cannot be used: Address already in use\n"
        )
        process.kill()
    assert os.listdir() == ["s"]
    with served(listen="unix:s") as (address, _):
        async with grpc.aio.insecure_channel(address) as channel:
            listed = await RouterStub(channel).ListWorkers(pb.ListWorkersRequest())
            assert not listed.workers
    assert os.listdir() == []


async def test_options_reach_the_router() -> None:
    options = ["--worker=a", "--worker=b=c=0.5", "--load-bound=2", "--slack=3", "--virtual-nodes=9"]
    with served(*options) as (address, _):
        async with grpc.aio.insecure_channel(address) as channel:
            listed = await RouterStub(channel).ListWorkers(pb.ListWorkersRequest())
    assert [(worker.worker, worker.weight) for worker in listed.workers] == [("a", 1.0), ("b=c", 0.5)]
    assert (listed.router, listed.load_bound, listed.slack, listed.virtual_nodes) == ("lbch", 2.0, 3, 9)


async def test_sticky_bounded_begins_on_the_least_loaded_worker_and_stays() -> None:
    with served("--worker=a", "--worker=b", "--router=sticky-bounded") as (address, _):
        async with grpc.aio.insecure_channel(address) as channel:
            router = RouterStub(channel)
            routes = [pb.RouteRequest(request_id=f"{n}", label=label) for n, label in enumerate("pqrspq")]
            assert [(await router.Route(route)).worker for route in routes] == ["a", "b", "a", "b", "a", "b"]
            assert (await router.ListWorkers(pb.ListWorkersRequest())).router == "sticky-bounded"


def test_listening_beyond_loopback_is_pointed_out() -> None:
    with served(listen="0.0.0.0:0") as (_, process):
        process.terminate()
        assert "0.0.0.0 is not loopback, and there is no authentication" in process.communicate(timeout=20)[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "nowhere"], "--listen must be HOST:PORT"),
        (["--worker", "w0=heavy"], "'heavy' is not a number"),
        (["--worker", "w0=0"], "must be greater than 0"),
        (["--worker", "w0=1e9"], "weight of 'w0' must be at most 1000"),
        (["--worker", "w0=1001"], "weight of 'w0' must be at most 1000"),
        (["--worker", "=1"], "worker must not be empty"),
        (["--worker", "w0", "--worker", "w0=2"], "--worker must name each worker once, got 'w0' again"),
        (["--virtual-nodes", "65537"], "virtual_nodes must be at most 65536"),
        (["--virtual-nodes", "0"], "must be at least 1"),
        (
            ["--router", "sticky-bounded", "--virtual-nodes", "64"],
            "--virtual-nodes is 64, which is for",
        ),
        (["--load-bound", "0.9"], "must be at least 1"),
        (["--slack", "-1"], "argument --slack: slack must be at least 0, got -1"),
        (["--slack", "1000001"], "argument --slack: slack must be at most 1000000, got 1000001"),
        (["--slack", "1.5"], "argument --slack: '1.5' is not an integer"),
        (["--grace-s", "-1"], "must be at least 0"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["serve", *options])
    except SystemExit as exit:
        code = exit.code
    assert code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["serve", "--listen", address]) == 2
    assert capsys.readouterr().err == (
        f"coresched serve: --listen {address} cannot be used: Address already in use\n"
    )


def test_sighup_without_files_to_read_again_says_so_and_the_service_goes_on() -> None:
    with served() as (_, process):
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        assert "none was given, nothing changed" in process.stderr.readline()
        process.terminate()
        assert process.wait(20) == 0


def test_output_that_cannot_be_written_is_one_line() -> None:
    command = [sys.executable, "-m", "coresched", "serve", "--listen", "127.0.0.1:0", "--journal", "none"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "coresched serve: the output cannot be written: No space left on device\n"


def test_a_mistaken_flag_is_told_with_the_commands_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--bogus"]) == 2
    said = "coresched serve: unrecognized arguments: --bogus (see coresched serve --help)\n"
    assert capsys.readouterr().err == said
