"""`coresched gateway --metrics` and `--log json`, scraped and read while requests come."""

from __future__ import annotations

import asyncio
import json

import aiohttp
from gateway_processes import gateway, workers
from gateways import CHAT, client
from prometheus_client.parser import text_string_to_metric_families


async def scraped(url: str) -> dict[str, dict[tuple[str, ...], float]]:
    """The values by name, and by label values in the order of the labels' names."""
    async with client() as session, session.get(url) as answer:
        assert answer.status == 200
        text = await answer.text()
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            values.setdefault(sample.name, {})[labels] = sample.value
    return values


async def test_metrics_are_scraped_and_worker_events_are_json() -> None:
    options = ("--metrics", "127.0.0.1:0", "--log", "json")
    async with workers(2) as started, gateway(started, *options) as (address, process), client() as session:
        assert process.stdout is not None
        assert process.stderr is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
        assert line.startswith("coresched gateway: metrics at http://127.0.0.1:")

        async def ask(path: str = CHAT, stream: bool = False, label: str = "k") -> aiohttp.ClientResponse:
            body = {"messages": [{"role": "user", "content": "a b"}], "stream": stream}
            headers = {"x-smg-routing-key": label}
            async with session.post(f"http://{address}{path}", json=body, headers=headers) as answer:
                await answer.read()
                return answer

        home = (await ask()).headers["x-coresched-worker"]
        (other,) = {worker.url for worker in started} - {home}
        for n in range(3):
            assert (await ask(stream=n > 0)).status == 200
        assert (await ask("/v1/embeddings")).status == 404
        assert (await ask(label="k" * 513)).status == 400
        gone = next(worker for worker in started if worker.url == home)
        await gone.kill()
        assert (await ask()).headers["x-coresched-worker"] == other
        said = json.loads(await asyncio.wait_for(process.stderr.readline(), 20))
        assert (said["event"], said["level"], said["worker"]) == ("worker_out", "warning", home)

        next(worker for worker in started if worker.url == other).gate.clear()
        held = asyncio.create_task(ask())
        for _ in range(2):  # the retry above arrived, too
            await asyncio.wait_for(next(w for w in started if w.url == other).arrived.acquire(), 20)
        values = await scraped(line.split()[-1])
        next(worker for worker in started if worker.url == other).gate.set()
        assert (await held).status == 200
        of = {
            name.removeprefix("coresched_gateway_"): by_labels
            for name, by_labels in values.items()
            if name.startswith("coresched_gateway_")
        }
        assert of["workers"] == {("healthy",): 1, ("out",): 1}
        assert of["worker_healthy"] == {(home,): 0, (other,): 1}
        assert of["worker_in_flight"] == {(home,): 0, (other,): 1}
        assert of["worker_routed_total"] == {(home,): 5, (other,): 2}
        assert of["worker_spilled_total"] == {(home,): 2, (other,): 0}
        assert of["worker_retries_total"] == {(home,): 0, (other,): 1}
        assert of["worker_failures_total"] == {(home,): 1, (other,): 0}
        assert of["answers_total"] == {("2xx",): 5, ("3xx",): 0, ("4xx",): 0, ("5xx",): 0}
        assert of["refused_requests_total"] == {("invalid_label", "400"): 1, ("not_found", "404"): 1}
        assert of["route_decision_seconds_count"] == {(): 7}
        assert of["request_seconds_count"] == of["first_byte_seconds_count"] == {(): 5}
        assert 0 < of["first_byte_seconds_sum"][()] <= of["request_seconds_sum"][()]
        assert of["request_imbalance"] == of["request_busy_seconds_total"] == {(): 0}
        assert values["process_resident_memory_bytes"][()] > 0
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 0
