"""What the endpoint picker answers over gRPC to what Envoy says, and what is in flight by then."""

import asyncio
import json
from pathlib import Path
from time import monotonic

import grpc
import pytest
from coresched_envoy.members import WorkersFile
from coresched_envoy.processing import EXTERNAL_PROCESSOR
from coresched_envoy.wire_pb2 import FULL_DUPLEX_STREAMED, STREAMED, BodySendMode, ProcessingRequest
from gateways import FakeWorker
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pickers import PATIENCE_S, EnvoySide, line, picker, until

from coresched.core import LoadBoundedRouter

HEALTH_S = 0.05


async def test_every_choice_and_the_order_behind_it_are_the_routers() -> None:
    async with picker(*(FakeWorker() for _ in range(4))) as started, EnvoySide(started.address) as envoy:
        router = LoadBoundedRouter(list(started.picker.fleet.in_flight()))
        for label in ["hot"] * 20 + [f"task-{number}" for number in range(40)]:
            order = router.order(label)
            assert order[0] == router.route(label)
            assert (await envoy.labelled(label)).endpoints == order
        assert started.picker.fleet.in_flight() == router.loads()


@pytest.mark.parametrize("router", ["lbch", "sticky-bounded"])
async def test_a_request_counts_until_its_line_comes(router: str) -> None:
    workers = [FakeWorker() for _ in range(2)]
    async with (
        picker(*workers, fleet={"router": router}) as started,
        EnvoySide(started.address) as envoy,
    ):
        asked = await envoy.labelled("a")
        await asked.response()
        flights = started.picker.flights
        log = envoy.log()
        await log.write(line(asked.mark, kind=4))  # the begin of a request, which some log too
        await log.write(line("", "of-another-1"))
        await until(lambda: flights.other_lines == 2)
        assert started.picker.fleet.in_flight()[asked.endpoints[0]] == 1
        await log.write(line(asked.mark))
        await until(lambda: len(flights) == 0)
        assert set(started.picker.fleet.in_flight().values()) == {0}
        again = await envoy.labelled("a")
        assert again.endpoints[0] == asked.endpoints[0]


async def test_who_served_takes_the_count_and_who_did_not_is_checked() -> None:
    async with (
        picker(FakeWorker(), FakeWorker(), fleet={"failures_to_out": 1}, health_interval_s=60) as started,
        EnvoySide(started.address) as envoy,
    ):
        asked = await envoy.labelled("a")
        first, second = asked.endpoints
        await asked.response(served=second)
        assert started.picker.fleet.in_flight() == {first: 0, second: 1}
        assert started.picker.moved == 1
        failed = started.picker.fleet.get(first)
        assert failed is not None
        assert failed.failures == 1
        log = envoy.log()
        await log.write(line(asked.mark))
        await until(lambda: len(started.picker.flights) == 0)
        assert started.picker.fleet.in_flight() == {first: 0, second: 0}


async def test_an_envoy_that_is_gone_leaves_nothing_in_flight() -> None:
    async with picker(FakeWorker(), FakeWorker(), log_wait_s=0.2) as started:
        async with EnvoySide(started.address) as other:
            kept = await other.labelled("kept")
            async with EnvoySide(started.address) as envoy:
                ended, streamed = await envoy.labelled("a"), await envoy.labelled("b")
                await envoy.labelled("c")  # has no response yet
                await streamed.response()
                await ended.response()
                await envoy.log().write(line(ended.mark))
                await until(lambda: len(started.picker.flights) == 3)
            await until(lambda: len(started.picker.flights) == 1)
            await kept.response(content_length="5")
            log = other.log()
            await log.write(line(kept.mark))
            await until(lambda: len(started.picker.flights) == 0)
        assert set(started.picker.fleet.in_flight().values()) == {0}
        assert started.picker.flights.without_line == 2


async def test_an_envoy_without_access_log_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        picker(FakeWorker(), log_wait_s=0.2) as started,
        EnvoySide(started.address) as envoy,
    ):
        first = await envoy.labelled("a")
        await first.response(content_length="5")
        later = await envoy.labelled("b")
        await until(lambda: "no line of Envoy's access log has come" in caplog.text)
        assert len(started.picker.flights) == 1
        await later.response()
        await until(lambda: len(started.picker.flights) == 0)
        assert started.picker.flights.by_stream == 1


@pytest.mark.parametrize("subset", [["{1}", "10.9.9.9:1"], "{1} , 10.9.9.9:1"])
async def test_a_subset_hint_limits_the_choice(subset: list[str] | str) -> None:
    async with picker(*(FakeWorker() for _ in range(3))) as started, EnvoySide(started.address) as envoy:
        names = list(started.picker.fleet.in_flight())
        hint = subset.format(*names) if isinstance(subset, str) else [one.format(*names) for one in subset]
        for number in range(6):
            assert (await envoy.labelled(f"task-{number}", subset=hint)).endpoints == [names[1]]
        assert started.picker.unknown_endpoints == 6
        by_header = await envoy.ask(("x-gateway-destination-endpoint-subset", f"{names[2]},{names[0]}"))
        assert set(by_header.endpoints) == {names[0], names[2]}
        for none in ([], ["10.9.9.9:1"]):
            refused = await envoy.labelled("a", subset=none)
            assert refused.refused == 503
        assert len(started.picker.flights) == 7


async def test_no_ready_worker_is_503_and_a_full_one_gets_nothing_more() -> None:
    workers = FakeWorker(), FakeWorker()
    async with (
        picker(*workers, max_in_flight=2, fleet={"load_bound": 8.0}) as started,
        EnvoySide(started.address) as envoy,
    ):
        for _ in range(4):
            assert (await envoy.labelled("hot")).refused == 0
        assert set(started.picker.fleet.in_flight().values()) == {2}
        refused = await envoy.labelled("hot")
        assert refused.refused == 429
        body = json.loads(refused.answer.immediate_response.body)
        assert body["error"]["code"] == "too_many_in_flight"
        await refused.end()
        for fake in workers:
            fake.health = 500  # else the check that follows may bring it back
        for worker in started.picker.fleet.workers:
            started.picker.fleet.unreachable(worker, "refused")
        assert (await envoy.labelled("hot")).refused == 503
        assert len(started.picker.flights) == 4
        assert started.picker.refused == {(429, "too_many_in_flight"): 1, (503, "no_healthy_worker"): 1}


async def test_labels_come_from_headers_and_a_request_without_one_gets_its_own() -> None:
    async with (
        picker(*(FakeWorker() for _ in range(3)), label_headers=("x-user-id",)) as started,
        EnvoySide(started.address) as envoy,
    ):
        router = LoadBoundedRouter(list(started.picker.fleet.in_flight()))
        for headers, label in (
            ([("x-user-id", "u"), ("x-session-id", "s"), ("x-smg-routing-key", "k")], "k"),
            ([("x-user-id", "u"), ("x-session-id", " s ")], "s"),
            ([("x-user-id", "ü")], "ü"),
        ):
            assert (await envoy.ask(*headers)).endpoints[0] == router.route(label)
        assert started.picker.unlabelled == 0
        assert len((await envoy.ask((":path", "/v1/models"))).endpoints) == 3
        assert started.picker.unlabelled == 1
        for headers in ([("x-session-id", "")], [("x-session-id", "a"), ("x-session-id", "b")]):
            refused = await envoy.ask(*headers)
            assert refused.refused == 400
            body = json.loads(refused.answer.immediate_response.body)
            assert body["error"]["param"] == "x-session-id"


@pytest.mark.parametrize("mode", [STREAMED, FULL_DUPLEX_STREAMED])
async def test_bodies_that_envoy_sends_go_on_unread_and_their_end_counts(mode: BodySendMode) -> None:
    async with picker(FakeWorker()) as started, EnvoySide(started.address) as envoy:
        request = ProcessingRequest()
        request.protocol_config.request_body_mode = request.protocol_config.response_body_mode = mode
        asked = await envoy.send(request)
        for kind, end in (("request_body", True), ("response_body", False), ("response_body", True)):
            if kind == "response_body" and not end:
                await asked.headers_of_response()
            piece = ProcessingRequest()
            body = getattr(piece, kind)
            body.body, body.end_of_stream = b"text", end
            assert len(started.picker.flights) == 1
            answer = await asked.send(piece)
            assert answer.WhichOneof("response") == kind
            streamed = getattr(answer, kind).response.body_mutation.streamed_response
            wanted = (b"text", end) if mode == FULL_DUPLEX_STREAMED else (b"", False)
            assert (streamed.body, streamed.end_of_stream) == wanted
        assert len(started.picker.flights) == 0
        await asked.end()


async def test_a_message_that_cannot_be_read_ends_its_stream_alone() -> None:
    async with picker(FakeWorker()) as started, EnvoySide(started.address) as envoy:
        call = envoy.channel.stream_stream(f"/{EXTERNAL_PROCESSOR}/Process")()
        await call.write(b"\xff\xff")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (await envoy.labelled("a")).refused == 0


@pytest.mark.parametrize("refused", [False, True])
async def test_a_second_request_on_a_stream_is_refused_and_counts_nothing(refused: bool) -> None:
    async with (
        picker(FakeWorker(), log_wait_s=0.01) as started,
        EnvoySide(started.address) as envoy,
    ):
        asked = await envoy.labelled("" if refused else "a")
        again = ProcessingRequest()
        again.request_headers.SetInParent()
        await asked.call.write(again)
        assert await asked.call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "request_headers must come once on a stream" in await asked.call.details()
        await until(lambda: len(started.picker.flights) == 0)
        assert set(started.picker.fleet.in_flight().values()) == {0}


async def test_health_says_whether_there_is_a_worker() -> None:
    worker = FakeWorker()
    async with (
        picker(worker, fleet={"failures_to_out": 1}, health_interval_s=HEALTH_S) as started,
        EnvoySide(started.address) as envoy,
    ):
        stub = health_pb2_grpc.HealthStub(envoy.channel)

        async def statuses() -> list[int]:
            return [
                (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status
                for name in ("", "readiness", EXTERNAL_PROCESSOR, "liveness")
            ]

        async def reach(wanted: list[int]) -> None:
            end = monotonic() + PATIENCE_S
            while (found := await statuses()) != wanted:
                assert monotonic() < end, found
                await asyncio.sleep(0.02)

        assert await statuses() == [1, 1, 1, 1]
        worker.health = 500
        await reach([2, 2, 2, 1])
        assert (await envoy.labelled("a")).refused == 503
        worker.health = 200
        await reach([1, 1, 1, 1])


async def test_workers_come_and_go_with_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given, more = FakeWorker(), FakeWorker()
    await more.start()
    path = tmp_path / "workers"
    path.write_text("# none yet\n")
    file = WorkersFile(path)
    file.read()
    async with picker(given, file=file) as started, EnvoySide(started.address) as envoy:
        fleet = started.picker.fleet
        name = f"127.0.0.1:{more.port}"
        path.write_text(f"{name}=2  # twice the others\n")
        await until(lambda: len(fleet.workers) == 2)
        asked = await envoy.labelled("a", subset=[name])
        assert asked.endpoints == [name]
        path.write_text("no address\n")
        await until(lambda: "line 1: a worker must be IP:PORT" in caplog.text)
        assert len(fleet.workers) == 2
        path.unlink()
        await until(lambda: "cannot be read" in caplog.text)
        assert len(fleet.workers) == 2
        path.write_text("")
        await until(lambda: len(fleet.workers) == 1)
        log = envoy.log()
        await asked.response(served=name)
        await log.write(line(asked.mark))
        await until(lambda: len(started.picker.flights) == 0)
        path.write_text(f"{name}\n")
        await until(lambda: len(fleet.workers) == 2)
        assert fleet.in_flight()[name] == 0
    await more.kill()


async def test_a_file_with_a_weight_that_is_too_big_changes_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    one, another = FakeWorker(), FakeWorker()
    await one.start()
    await another.start()
    names = [f"127.0.0.1:{worker.port}" for worker in (one, another)]
    path = tmp_path / "workers"
    path.write_text("")
    file = WorkersFile(path)
    file.read()
    async with picker(file=file) as started:
        fleet = started.picker.fleet
        path.write_text(f"{names[0]}\n")
        await until(lambda: len(fleet.workers) == 1)
        path.write_text(f"{names[0]}=1001\n{names[1]}\n")
        await until(lambda: "weight must be above 0, at most 1000, got 1001" in caplog.text)
        assert [(worker.name, worker.weight) for worker in fleet.workers] == [(names[0], 1)]
        path.write_text(f"{names[0]}=2\n")
        await until(lambda: "has another weight, 2" in caplog.text)
    await one.kill()
    await another.kill()
