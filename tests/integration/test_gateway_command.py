"""`coresched gateway` as its users meet it: a process, signals, sockets, and OpenAI's own client."""

import asyncio
import re
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from gateway_processes import gateway, workers
from gateways import CHAT, client

from coresched.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"


async def test_openais_client_works_unmodified() -> None:
    async with workers(2) as started, gateway(started) as (address, _):
        asking = openai.AsyncOpenAI(base_url=f"http://{address}/v1", api_key="k", max_retries=0)
        for n in range(6):
            label = {"x-smg-routing-key": f"task-{n}"}
            asked: list[Any] = [{"role": "user", "content": f"Fix bug {n} now"}]
            answer = await asking.chat.completions.with_raw_response.create(
                model="m", messages=asked, extra_headers=label
            )
            stream = await asking.chat.completions.create(
                model="m", messages=asked, extra_headers=label, stream=True
            )
            words = [event.choices[0].delta.content async for event in stream]
            assert answer.parse().choices[0].message.content == f"Fix bug {n} now"
            assert words == ["Fix", "bug", str(n), "now"]
            assert stream.response.headers["x-coresched-worker"] == answer.headers["x-coresched-worker"]
        await asking.close()


async def test_openais_client_reads_the_errors() -> None:
    async with workers(2) as started, gateway(started) as (address, _):
        asking = openai.AsyncOpenAI(base_url=f"http://{address}/v1", api_key="k", max_retries=0)
        too_long = {"x-smg-routing-key": "k" * 600}
        with pytest.raises(
            openai.BadRequestError, match="header x-smg-routing-key must be at most 512"
        ) as bad:
            await asking.chat.completions.create(model="m", messages=[], extra_headers=too_long)
        assert (bad.value.code, bad.value.param) == ("invalid_label", "x-smg-routing-key")
        with pytest.raises(openai.NotFoundError, match="'/v1/embeddings' is not served"):
            await asking.embeddings.create(model="m", input="x")
        for worker in started:
            await worker.kill()
        with pytest.raises(openai.InternalServerError, match="nothing was executed") as down:
            await asking.chat.completions.create(model="m", messages=[])
        assert down.value.response.headers["Retry-After"] == "5"
        await asking.close()


async def test_the_pages_example_runs_as_printed() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    async with workers(2) as started, gateway(started) as (address, _):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            example.replace("127.0.0.1:8080", address),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert (process.returncode, out.decode()) == (0, "Fix the bug.\n"), err
        assert [seen.header("x-smg-routing-key") for worker in started for seen in worker.seen] == [
            ["task-17#1"]
        ]


async def refused(address: str) -> None:
    """Returns once the gateway takes no new connection."""
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
async def test_a_signal_lets_open_requests_end(number: signal.Signals) -> None:
    async with workers(1) as started, gateway(started, "--grace-s", "60") as (address, process):
        async with client() as session:
            body = {"messages": [{"role": "user", "content": "a b"}]}
            async with session.post(f"http://{address}{CHAT}", json=body) as idle:
                assert idle.status == 200  # its connection stays open in the session
            started[0].gate.clear()
            held = [
                asyncio.create_task(session.post(f"http://{address}{CHAT}", json={**body, "stream": stream}))
                for stream in (False, True)
            ]
            for _ in range(3):
                await asyncio.wait_for(started[0].arrived.acquire(), 20)
            process.send_signal(number)
            await asyncio.wait_for(refused(address), 20)
            started[0].gate.set()
            for answer in await asyncio.gather(*held):
                assert (answer.status, answer.headers["Connection"]) == (200, "close")
                assert await answer.read()
        out, err = await asyncio.wait_for(process.communicate(), 20)
        assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.parametrize(("grace_s", "signals"), [("0.2", 1), ("600", 2)])
async def test_the_grace_period_or_a_second_signal_ends_requests(grace_s: str, signals: int) -> None:
    async with workers(1) as started, gateway(started, "--grace-s", grace_s) as (address, process):
        started[0].gate.clear()
        async with client() as session:
            held = asyncio.create_task(session.post(f"http://{address}{CHAT}", json={}))
            await asyncio.wait_for(started[0].arrived.acquire(), 20)
            for _ in range(signals):
                process.terminate()
                await asyncio.wait_for(refused(address), 20)
            with pytest.raises(aiohttp.ClientError):
                await held
        assert await asyncio.wait_for(process.wait(), 20) == 0
        await asyncio.wait_for(started[0].gone.wait(), 20)


async def test_a_unix_socket_serves_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with workers(1) as started, gateway(started, listen=f"unix:{path}") as (address, process):
        assert address == f"unix:{path}"
        async with client(connector=aiohttp.UnixConnector(str(path))) as session:
            answer = await session.get("http://gateway/health")
            assert (answer.status, await answer.json()) == (200, {"healthy_workers": 1, "workers": 1})
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 0
        assert not path.exists()


async def test_many_requests_at_once_get_their_descriptors() -> None:
    async with workers(2) as started, gateway(started, descriptors=64) as (address, _), client() as session:
        for worker in started:
            worker.gate.clear()
        body = {"messages": [{"role": "user", "content": "a"}]}
        held = [asyncio.create_task(session.post(f"http://{address}{CHAT}", json=body)) for _ in range(90)]
        while sum(len(worker.seen) for worker in started) < len(held):
            assert not any(request.done() for request in held)
            await asyncio.sleep(0.02)
        for worker in started:
            worker.gate.set()
        assert {answer.status for answer in await asyncio.gather(*held)} == {200}


async def test_what_happens_to_workers_is_said() -> None:
    async with workers(1) as started, gateway(started, "--health-interval-s", "0.05") as (_, process):
        assert process.stderr is not None
        await started[0].kill()
        said = (await asyncio.wait_for(process.stderr.readline(), 20)).decode()
        assert said.startswith(f"coresched gateway: worker {started[0].url} is out: ")
        await started[0].start()
        said = (await asyncio.wait_for(process.stderr.readline(), 20)).decode()
        assert said == f"coresched gateway: worker {started[0].url} is back: it is healthy\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--worker or --service must be given"),
        (
            ["--worker", "http://w", "--service-wait-s", "3"],
            "--service-wait-s is for a service; add --service",
        ),
        (["--worker", "w0"], "--worker must be a base URL"),
        (["--worker", "http://w:1?x=1"], "got 'http://w:1?x=1', which has a query"),
        (["--worker", "http://w=1e9"], "weight of 'http://w' must be at most 1000, got 1000000000.0"),
        (["--worker", "http://w=heavy"], "'heavy' is not a number"),
        (["--worker", "http://w=1001"], "weight of 'http://w' must be at most 1000"),
        (["--worker", "http://w=1000", "--virtual-nodes", "65536"], "weight must be at most 16 with 65536"),
        (["--worker", "http://w", "--worker", "http://w/=2"], "name each worker once, got 'http://w' again"),
        (["--worker", "http://w", "--listen", "nowhere"], "--listen must be HOST:PORT"),
        (
            ["--worker", "http://w", "--listen", "127.0.0.1:0", "--metrics", "9"],
            "--metrics must be HOST:PORT",
        ),
        (["--worker", "http://w", "--load-bound", "0.9"], "must be at least 1"),
        (["--worker", "http://w", "--max-body-mib", "0"], "must be greater than 0"),
        (["--worker", "http://w", "--health-interval-s", "0"], "must be greater than 0"),
        (["--worker", "http://w", "--health-failures", "0"], "must be at least 1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["gateway", *options])
    except SystemExit as exit:
        code = exit.code
    assert code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_the_help_ends_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gateway", "--help"])
    example = "example:\n  coresched gateway --listen 127.0.0.1:8080 \\\n    --worker http"
    assert example in capsys.readouterr().out
