"""What the gateway records of each request, and that bodies pass all the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from gateways import CHAT, FakeWorker, client, gateway

from coresched.errors import InputError
from coresched.recording.events import Attempt
from coresched.recording.reader import read_sources, recording_files
from coresched.recording.requests import RequestRecord

LABEL = {"x-smg-routing-key": "t1"}
USAGE = b'{"id": "c", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}'
EVENTS = [b'data: {"id": "c", "usage": null}\n\n', b"data: %s\n\n" % USAGE, b"data: [DONE]\n\n"]
LONG = json.dumps({"id": "l", "text": "x" * 100_000, "usage": {"prompt_tokens": 9, "completion_tokens": 2}})

Respond = Callable[[web.BaseRequest, bytes], Awaitable[web.StreamResponse]]


def attempts(folder: Path) -> list[Attempt]:
    sources = read_sources(recording_files(folder))
    assert sources.faults == []
    assert [source.header.source for source in sources.each] == ["gateway"]
    return [event for event in sources.each[0].events if isinstance(event, Attempt)]


def whole(body: bytes, status: int = 200) -> Respond:
    async def respond(request: web.BaseRequest, _: bytes) -> web.StreamResponse:
        return web.Response(status=status, body=body, content_type="application/json")

    return respond


async def stream(request: web.BaseRequest, _: bytes) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for event in EVENTS:
        await answer.write(event)
        await asyncio.sleep(0)
    return answer


@pytest.mark.parametrize(
    ("respond", "body", "streamed"),
    [
        (whole(USAGE), USAGE, False),
        (whole(LONG.encode()), LONG.encode(), False),
        (stream, b"".join(EVENTS), True),
    ],
    ids=["short", "long", "stream"],
)
async def test_an_answer_passes_byte_for_byte_and_its_usage_is_recorded(
    tmp_path: Path, respond: Respond, body: bytes, streamed: bool
) -> None:
    record = RequestRecord(tmp_path, "gateway")
    async with gateway(FakeWorker(respond), record=record) as running, client() as session:
        async with session.post(running.url + CHAT, json={}, headers=LABEL) as answer:
            assert await answer.read() == body
        worker = running.workers[0].url
    record.close()
    (only,) = attempts(tmp_path)
    assert (only.sample, only.worker, only.status, only.reason) == ("t1", worker, 200, None)
    assert (only.prompt_tokens, only.output_tokens, only.streamed) == (9, 2, streamed)
    assert only.first_byte_s is not None
    assert only.sent_s + only.first_byte_s <= only.ended_s


async def test_requests_that_failed_are_recorded_with_why(tmp_path: Path) -> None:
    async def abort(request: web.BaseRequest, _: bytes) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    record = RequestRecord(tmp_path, "gateway")
    worker = FakeWorker(whole(b"{}", status=500))
    async with gateway(worker, record=record, failures_to_out=99) as running, client() as session:
        for respond in (whole(b"{}", status=500), abort):
            worker.respond = respond
            async with session.post(running.url + CHAT, json={}, headers=LABEL) as answer:
                await answer.read()
        await worker.kill()
        async with session.post(running.url + CHAT, json={}, headers=LABEL) as answer:
            assert answer.status == 503
        async with session.get(running.url + "/v1/models") as answer:
            await answer.read()  # which asks no model, and is not recorded
    record.close()
    assert [(one.status, one.reason) for one in attempts(tmp_path)] == [
        (500, "status 500"),
        (None, "it got no whole answer"),
        (None, "it got no whole answer"),
    ]


async def test_a_client_that_leaves_leaves_a_request_without_answer(tmp_path: Path) -> None:
    async def half(request: web.BaseRequest, _: bytes) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(EVENTS[0])
        await asyncio.Event().wait()
        return answer

    record = RequestRecord(tmp_path, "gateway")
    worker = FakeWorker(half)
    async with gateway(worker, record=record) as running, client() as session:
        async with session.post(running.url + CHAT, json={}, headers=LABEL) as answer:
            assert await answer.content.readany() == EVENTS[0]
            answer.close()
        await worker.gone.wait()
    record.close()
    (only,) = attempts(tmp_path)
    assert (only.status, only.reason) == (200, "it got no whole answer")


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"--record .*file' is not a directory"):
        RequestRecord(tmp_path / "file", "gateway", field="--record")
