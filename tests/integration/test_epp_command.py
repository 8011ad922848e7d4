"""`coresched epp` as a process: what it prints, takes and refuses, and how it ends."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import aiohttp
import grpc
import pytest
from gateways import FakeWorker
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pickers import EnvoySide, line

PATIENCE_S = 20.0
SAID = "coresched epp: listening on "


@asynccontextmanager
async def command(
    *options: str, listen: str = "127.0.0.1:0"
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """The address that it printed, and its process."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "coresched", "epp", "--listen", listen, *options, stdout=pipe, stderr=pipe
    )
    assert process.stdout is not None
    try:
        said = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        assert said.startswith(SAID), await process.communicate()
        yield said.removeprefix(SAID).strip(), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
async def worker() -> AsyncIterator[str]:
    started = FakeWorker()
    await started.start()
    yield f"127.0.0.1:{started.port}"
    await started.kill()


async def test_it_answers_on_a_socket_and_shows_its_counts(worker: str, tmp_path: Path) -> None:
    listen = f"unix:{tmp_path / 'picker'}"
    async with command("--worker", worker, "--metrics", "127.0.0.1:0", listen=listen) as (address, process):
        assert address == listen
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().split()[-1]
        async with EnvoySide(address) as envoy, aiohttp.ClientSession() as client:
            asked = await envoy.labelled("a")
            assert asked.endpoints == [worker]
            async with client.get(url) as response:
                text = await response.text()
            assert f'coresched_epp_worker_in_flight{{worker="{worker}"}} 1.0' in text
            assert 'coresched_epp_ended_requests_total{by="line"} 0.0' in text
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
        assert not (tmp_path / "picker").exists()


async def test_it_answers_on_while_it_drains_until_nothing_is_in_flight(worker: str) -> None:
    async with (
        command("--worker", worker, "--grace-s", "60") as (address, process),
        EnvoySide(address) as envoy,
    ):
        asked = await envoy.labelled("a")
        process.send_signal(signal.SIGTERM)
        stub = health_pb2_grpc.HealthStub(envoy.channel)
        request = health_pb2.HealthCheckRequest(service="readiness")
        end = monotonic() + PATIENCE_S
        while (await stub.Check(request)).status != health_pb2.HealthCheckResponse.NOT_SERVING:
            assert monotonic() < end
            await asyncio.sleep(0.02)
        another = await envoy.labelled("b")
        assert another.endpoints == [worker]
        assert process.returncode is None
        log = envoy.log()
        await log.write(line(asked.mark, another.mark))
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--worker or --workers-file must be given"),
        (["--worker", "http://10.0.0.1:80"], "--worker must be IP:PORT or [IPV6]:PORT"),
        (["--worker", "10.0.0.1:0"], "got '10.0.0.1:0'"),
        (["--worker", "10.0.0.1:80", "--worker", "10.0.0.1:80=2"], "must name each worker once"),
        (["--worker", "10.0.0.1:80=5000"], "at most 1000"),
        (["--worker", "10.0.0.1:80", "--workers-file", "{file}"], "names 10.0.0.1:80, and so does --worker"),
        (["--workers-file", "{file}.none"], "cannot be read: No such file or directory"),
        (["--workers-file", "{bad}"], "line 2: the weight must be a number above 0, got '-1'"),
        (["--worker", "10.0.0.1:80", "--label-header", "a b"], "--label-header must be the name"),
        (["--worker", "10.0.0.1:80", "--max-in-flight", "0"], "--max-in-flight: 0 is too small"),
        (["--worker", "10.0.0.1:80", "--metrics", "unix:/no/such/folder/m"], "there is no directory"),
    ],
)
async def test_bad_input_is_one_line(options: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("10.0.0.1:80\n")
    (tmp_path / "bad").write_text("10.0.0.1:80\n10.0.0.2:80=-1\n")
    given = [text.format(file=tmp_path / "file", bad=tmp_path / "bad") for text in options]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "coresched", "epp", "--listen", "127.0.0.1:0", *given),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 2
    (text,) = stderr.decode().splitlines()
    assert text.startswith("coresched epp: ")
    assert said in text


async def test_an_address_in_use_is_refused(worker: str) -> None:
    async with command("--worker", worker) as (address, _):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "coresched", "epp", "--listen", address, "--worker", worker),
            stderr=asyncio.subprocess.PIPE,
        )
        _, stderr = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert (process.returncode, b"cannot be used: Address already in use" in stderr) == (2, True)
        async with grpc.aio.insecure_channel(address) as channel:
            await asyncio.wait_for(channel.channel_ready(), PATIENCE_S)
