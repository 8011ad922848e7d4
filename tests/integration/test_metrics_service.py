"""`coresched serve --metrics`: scraped while a client works on a batch, and read as Prometheus does."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from google.protobuf.message import Message
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text
from served import served

from coresched.cli.main import main
from coresched.v1 import batches_pb2 as pb
from coresched.v1 import router_pb2
from coresched.v1.batches_pb2_grpc import BatchesStub
from coresched.v1.router_pb2_grpc import RouterStub

Values = dict[tuple[str, ...], float]


class Scraper:
    def __init__(self, url: str) -> None:
        self._url = url

    async def scrape(self, accept: str = "") -> dict[str, Values]:
        """The values by name, and by label values in the order of the labels' names."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(self._url, headers={"Accept": accept}) as answer,
        ):
            assert answer.status == 200
            text = await answer.text()
        parse = open_metrics if "openmetrics" in accept else plain_text
        values: dict[str, Values] = {}
        for family in parse(text):
            for sample in family.samples:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                values.setdefault(sample.name, {})[labels] = sample.value
        return values


class Caller:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = BatchesStub(channel)
        self._calls = 0
        self.session = ""

    async def __call__(self, name: str, **fields: Any) -> Any:
        self._calls += 1
        request: Message = getattr(pb, f"{name}Request")(request_id=f"id {self._calls}", **fields)
        return await getattr(self._stub, name)(request, timeout=20)

    async def on(self, name: str, sample: str, **fields: Any) -> Any:
        return await self(name, session=self.session, sample=sample, **fields)


async def test_a_batch_is_scraped_at_every_stage(tmp_path: Path) -> None:
    options = (
        "--worker",
        "w0",
        "--worker",
        "w1",
        "--metrics",
        "127.0.0.1:0",
        "--journal",
        str(tmp_path / "j"),
    )
    with served(*options) as (address, process):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("coresched serve: metrics at http://127.0.0.1:")
        scraper = Scraper(line.split()[-1])
        async with grpc.aio.insecure_channel(address) as channel:
            call = Caller(channel)
            shape = pb.BatchOptions(sample_concurrency=2, environment_concurrency=1)
            opened = await call("OpenBatch", batch='b "1"\n\\', options=shape)
            call.session = opened.session
            of = ('b "1"\n\\',)
            await call("SubmitSamples", session=call.session, samples=["secret-a", "secret-b", "secret-c"])
            for sample in ("secret-a", "secret-b"):
                await call.on("AwaitAdmission", sample)
                await call.on("StartTurn", sample)
                await call.on("FinishTurn", sample)
                if sample == "secret-a":
                    await call.on("AcquireEnvironment", sample)
            waiting = asyncio.create_task(call.on("AcquireEnvironment", "secret-b"))
            while not (values := await scraper.scrape())["coresched_waiting_calls"][()]:
                await asyncio.sleep(0.01)
            states = values["coresched_batch_samples"]
            assert {state[1]: count for state, count in states.items() if count} == {
                "open": 1,
                "environment": 1,
                "queued": 1,
            }
            assert states[(*of, "open", "")] == 1
            assert values["coresched_batch_environment_oldest_wait_seconds"][(*of, "")] > 0
            assert values["coresched_batch_admitted_by_turns"][(*of, "", "1")] == 2
            assert values["coresched_batch_turns_total"] == {(*of, ""): 2}
            assert sum(values["coresched_worker_routed_total"].values()) == 2
            assert sum(values["coresched_worker_in_flight"].values()) == 0
            assert values["coresched_route_decision_seconds_count"][()] == 2

            with pytest.raises(grpc.aio.AioRpcError, match="between stages"):
                await call.on("FinishSample", "secret-a")
            await call.on("ReleaseEnvironment", "secret-a")
            await waiting
            await call.on("ReleaseEnvironment", "secret-b", failed=True)
            await call.on("FinishSample", "secret-a")
            await call.on("FinishSample", "secret-b")
            closed = await call("CloseBatch", batch=of[0])
            values = await scraper.scrape("application/openmetrics-text; version=1.0.0")
            spent = values["coresched_batch_seconds_total"]
            assert spent[(*of, "environment_queue", "")] == closed.progress.environment_queue_s > 0
            assert values["coresched_environment_wait_seconds_sum"][()] == closed.progress.environment_queue_s
            assert values["coresched_environment_wait_seconds_count"][()] == 2
            assert values["coresched_environment_wait_by_turns_seconds_count"][("1",)] == 2
            assert values["coresched_environment_stage_seconds_count"][()] == 1
            assert values["coresched_environment_stages_total"][("failed",)] == 1
            assert values["coresched_batch_makespan_seconds"][(*of, "")] == closed.progress.makespan_s
            assert values["coresched_refused_calls_total"] == {("FAILED_PRECONDITION", "FinishSample"): 1}
            states = values["coresched_batch_samples"]
            assert (states[(*of, "finished", "")], states[(*of, "withdrawn", "")]) == (2, 1)
            # BatchOpened, SessionOpened, SamplesSubmitted, then 12 calls on samples and CloseBatch.
            assert values["coresched_journal_facts_total"][()] == 16
            assert values["coresched_journal_pending"][()] == 0
            assert 1 <= values["coresched_journal_commit_seconds_count"][()] <= 16
            names = {label for by_labels in values.values() for labels in by_labels for label in labels}
            assert not any("secret" in name or call.session in name for name in names)


async def test_there_is_nothing_but_metrics_and_they_end_with_the_service() -> None:
    with served("--metrics", "127.0.0.1:0") as (_, process):
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        async with aiohttp.ClientSession() as session:
            for method, path, status in (
                ("GET", "", 404),
                ("POST", "/metrics", 405),
                ("HEAD", "/metrics", 200),
            ):
                async with session.request(method, url.removesuffix("/metrics") + path) as answer:
                    assert answer.status == status
            process.terminate()
            assert await asyncio.to_thread(process.wait, 20) == 0
        assert process.communicate() == ("", "")


async def test_refused_calls_of_all_kinds_are_counted() -> None:
    with served("--metrics", "127.0.0.1:0") as (address, process):
        assert process.stdout is not None
        scraper = Scraper(process.stdout.readline().split()[-1])
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await RouterStub(channel).Route(router_pb2.RouteRequest(request_id="a", label="k"))
            stream = RouterStub(channel).RouteStream()
            await stream.write(router_pb2.RouteStreamRequest())
            assert (await stream.read()).HasField("refusal")
            watching = BatchesStub(channel).WatchProgress(pb.WatchProgressRequest(batch="none"))
            with pytest.raises(grpc.aio.AioRpcError):
                await watching.read()
            undecodable = channel.unary_unary("/coresched.v1.Router/Release")
            with pytest.raises(grpc.aio.AioRpcError):
                await undecodable(b"\xff")
        values = await scraper.scrape()
        assert values["coresched_refused_calls_total"] == {
            ("FAILED_PRECONDITION", "Route"): 1,
            ("INVALID_ARGUMENT", "RouteStream"): 1,
            ("NOT_FOUND", "WatchProgress"): 1,
            ("INVALID_ARGUMENT", "Release"): 1,
        }


def test_an_address_that_cannot_be_used_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    serve = ["serve", "--listen", "127.0.0.1:0", "--journal", "none", "--metrics"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main([*serve, address]) == 2
    assert main([*serve, "9090"]) == 2
    assert capsys.readouterr().err == (
        f"coresched serve: --metrics {address} cannot be used: Address already in use\n"
        "coresched serve: --metrics must be HOST:PORT, [IPV6]:PORT or unix:PATH, such as 127.0.0.1:50071, "
        "got '9090'\n"
    )
