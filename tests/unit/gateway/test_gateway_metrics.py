"""The metrics of a gateway: every value exactly, on a clock that the test moves."""

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from gateways import CHAT, FakeWorker, client, exchanged, gateway

from coresched.core.ring import LoadBoundedRouter
from coresched.gateway.collector import GatewayCollector
from coresched.gateway.fleet import Fleet
from coresched.gateway.refusal import RefusedError
from coresched.gateway.traffic import Traffic
from coresched.gateway.workers import Worker

NAMES = ["http://a:1", "http://b:1"]
Values = dict[tuple[str, ...], float]


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def scraped(fleet: Fleet, traffic: Traffic) -> dict[str, Values]:
    """The gateway's own values, by name and by label values in the order in which they are written."""
    values: dict[str, Values] = {}
    for family in GatewayCollector(fleet, traffic).collect():
        if family.name.startswith("coresched_"):
            for sample in family.samples:
                values.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return values


def labels_of(home: str, count: int) -> list[str]:
    """Labels with this worker as home."""
    ring = LoadBoundedRouter(NAMES)
    return [label for label in map(str, range(1000)) if ring.home(label) == home][:count]


async def test_workers_and_imbalance_exactly() -> None:
    clock = Clock()
    fleet = Fleet([Worker(name) for name in NAMES], clock=clock)
    traffic = Traffic(clock)
    a, b = fleet.workers
    held = [fleet.route(label) for label in labels_of(NAMES[0], 3)]
    assert held == [a, a, b]  # the bound of 1.25 sends the third elsewhere
    clock.now += 4.0
    values = scraped(fleet, traffic)
    assert values["coresched_gateway_worker_in_flight"] == {(NAMES[0],): 2, (NAMES[1],): 1}
    assert values["coresched_gateway_worker_spilled_total"] == {(NAMES[0],): 1, (NAMES[1],): 0}
    assert values["coresched_gateway_request_imbalance"][()] == 1 / 3
    assert values["coresched_gateway_request_imbalance_seconds_total"][()] == pytest.approx(4 / 3)
    assert values["coresched_gateway_request_busy_seconds_total"][()] == 4
    assert values["coresched_gateway_route_decision_seconds_count"][()] == 3

    # One worker alone has no imbalance, so no time counts while the other is out.
    fleet.unreachable(a, "refused")
    clock.now += 5.0
    values = scraped(fleet, traffic)
    assert values["coresched_gateway_workers"] == {("healthy",): 1, ("out",): 1}
    assert values["coresched_gateway_worker_healthy"] == {(NAMES[0],): 0, (NAMES[1],): 1}
    assert values["coresched_gateway_worker_failures_total"] == {(NAMES[0],): 1, (NAMES[1],): 0}
    assert values["coresched_gateway_request_busy_seconds_total"][()] == 4
    assert values["coresched_gateway_request_imbalance"][()] == 0

    # A request ends on a worker that is out; a retry counts where it went, and as spilled from its home.
    fleet.release(held[0])
    retried = fleet.route(labels_of(NAMES[0], 1)[0], [a])
    assert retried is b
    a.recheck.clear()
    fleet.check_passed(a)
    values = scraped(fleet, traffic)
    assert values["coresched_gateway_worker_retries_total"] == {(NAMES[0],): 0, (NAMES[1],): 1}
    assert values["coresched_gateway_worker_spilled_total"][NAMES[0],] == 2
    assert values["coresched_gateway_worker_routed_total"] == {
        (NAMES[0],): 2,
        (NAMES[1],): 2,
    }
    assert values["coresched_gateway_request_imbalance"][()] == 1 / 3  # one and two in flight
    assert {worker.name: worker.in_flight for worker in fleet.workers} == fleet.in_flight()
    for worker in (*held[1:], retried):
        fleet.release(worker)
    assert fleet.imbalance().present is None


async def test_latencies_answers_and_refusals_exactly() -> None:
    clock = Clock()
    traffic = Traffic(clock)
    arrived = clock()
    clock.now += 0.5
    traffic.first_byte(arrived)
    clock.now += 2.5
    traffic.ended(arrived)
    traffic.whole(arrived - 5)
    for status in (200, 204, 404, 503, 700):
        traffic.answered(status)
    for _ in range(2):
        traffic.refuse(RefusedError(404, "not_found", "not served"))
    values = scraped(Fleet([Worker(NAMES[0])]), traffic)
    assert values["coresched_gateway_first_byte_seconds_count"][()] == 2
    assert values["coresched_gateway_first_byte_seconds_sum"][()] == 8.5
    assert values["coresched_gateway_first_byte_seconds_bucket"][("0.5",)] == 1
    assert values["coresched_gateway_request_seconds_sum"][()] == 11
    assert values["coresched_gateway_request_seconds_bucket"][("2.5",)] == 0
    assert values["coresched_gateway_request_seconds_bucket"][("5.0",)] == 1
    assert values["coresched_gateway_answers_total"] == {
        ("2xx",): 2,
        ("3xx",): 0,
        ("4xx",): 1,
        ("5xx",): 1,
        ("7xx",): 1,
    }
    assert values["coresched_gateway_refused_requests_total"] == {("404", "not_found"): 2}


async def streamed(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    """A stream of two pieces, which breaks off after the first if asked to; 429 in one piece if asked to."""
    if body == b"busy":
        return web.Response(status=429, text="busy")
    answer = web.StreamResponse()
    await answer.prepare(request)
    await answer.write(b"one")
    if body == b"break":
        assert request.transport is not None
        request.transport.abort()
        return answer
    await answer.write(b"two")
    return answer


async def test_what_requests_add() -> None:
    async with gateway(FakeWorker(streamed)) as running, client() as session:
        for body, status in ((b"", 200), (b"busy", 429)):
            async with session.post(running.url + CHAT, data=body) as answer:
                assert answer.status == status
                await answer.read()
        with pytest.raises(aiohttp.ClientError):
            async with session.post(running.url + CHAT, data=b"break") as answer:
                await answer.read()
        traffic = running.gateway.traffic
        assert (traffic.first_byte_s.count, traffic.request_s.count) == (3, 2)
        async with session.get(running.url + "/v1/models") as answer:  # no inference request
            assert answer.status == 200
            await answer.read()
        async with session.get(running.url + "/none") as answer:
            assert answer.status == 404
        assert b" 400 " in await exchanged(running.port, b"no HTTP\r\n\r\n")
        assert traffic.answers[2:6] == [2, 0, 1, 0]
        assert traffic.refused == {(404, "not_found"): 1, (400, "invalid_request"): 1}
        assert (traffic.first_byte_s.count, traffic.request_s.count) == (3, 2)
        assert traffic.first_byte_s.sum > 0
        assert [worker.failures for worker in running.fleet.workers] == [1]


async def test_a_client_that_leaves_has_no_latency() -> None:
    worker = FakeWorker()
    async with gateway(worker) as running, client() as session:
        worker.gate.clear()
        asking = asyncio.create_task(session.post(running.url + CHAT, data=b"{}"))
        await asyncio.wait_for(worker.arrived.acquire(), 20)
        asking.cancel()
        await asyncio.wait_for(worker.gone.wait(), 20)
        assert running.gateway.traffic.request_s.count == 0
        assert sum(running.gateway.traffic.answers) == 0


async def test_the_page_lists_the_metrics_there_are() -> None:
    there = {
        family.name + "_total" * (family.type == "counter")
        for family in GatewayCollector(Fleet([Worker(NAMES[0])]), Traffic()).collect()
        if family.name.startswith("coresched_")
    }
    page = (Path(__file__).parents[3] / "docs" / "observability.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `coresched_gateway_")]
    assert set(re.findall(r"coresched_\w+", "\n".join(row.split("|")[1] for row in rows))) == there
