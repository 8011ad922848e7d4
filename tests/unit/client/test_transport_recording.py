"""What the transports record of each request, however it ends."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import pytest
from model_workers import refusing

import coresched
from coresched.errors import InputError
from coresched.httpx import SharedRouter, SyncTransport, Transport
from coresched.recording.events import Attempt
from coresched.recording.reader import read_sources, recording_files

CHAT = "http://workers/v1/chat/completions"
ANSWER = {"id": "x1", "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
DONE = b"data: [DONE]\n\n"


def attempts(folder: Path) -> list[Attempt]:
    sources = read_sources(recording_files(folder))
    assert sources.faults == []
    assert [source.header.source for source in sources.each] == ["transport"]
    return [event for event in sources.each[0].events if isinstance(event, Attempt)]


class Stream(httpx.SyncByteStream):
    """An answer in two pieces; the second is the end of it, or its failure."""

    def __init__(self, last: bytes | Exception) -> None:
        self._last = last

    def __iter__(self) -> Iterator[bytes]:
        yield b"data: %s\n\n" % json.dumps(ANSWER).encode()
        if isinstance(self._last, Exception):
            raise self._last
        yield self._last


class AsyncStream(httpx.AsyncByteStream):
    """The same for an asynchronous client."""

    def __init__(self, last: bytes | Exception) -> None:
        self._stream = Stream(last)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._stream:
            yield part


def respond(request: httpx.Request, stream: type[Stream] | type[AsyncStream] = AsyncStream) -> httpx.Response:
    """What the path's last query value asks for."""
    match request.url.params.get("do"):
        case "stream":
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=stream(DONE))
        case "break":
            broken = stream(httpx.ReadError("reset"))
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=broken)
        case "gzip":
            packed = gzip.compress(json.dumps(ANSWER).encode())
            headers = {"content-type": "application/json", "content-encoding": "gzip"}
            return httpx.Response(200, headers=headers, content=packed)
        case "gateway":
            return httpx.Response(200, json=ANSWER, headers={"x-coresched-worker": "http://w7"})
        case "busy":
            return httpx.Response(503, json={"error": {"message": "busy"}})
        case "timeout":
            raise httpx.ReadTimeout("too late")
    return httpx.Response(200, json=ANSWER)


EXPECTED = {
    "": (200, None, 9, "w"),
    "stream": (200, None, 9, "w"),
    "break": (200, "ReadError: reset", 9, "w"),
    "gateway": (200, None, 9, "http://w7"),
    "busy": (503, "status 503", None, "w"),
    "timeout": (None, "ReadTimeout: too late", None, "w"),
}
"""Status, reason, prompt tokens and worker of each."""


def found(attempt: Attempt) -> tuple[int | None, str | None, int | None, str]:
    return attempt.status, attempt.reason, attempt.prompt_tokens, attempt.worker


async def test_each_request_is_recorded_as_it_ended(tmp_path: Path) -> None:
    transport = Transport({"w": "http://w"}, inner=lambda: httpx.MockTransport(respond), record=tmp_path)
    async with httpx.AsyncClient(transport=transport) as client:
        with coresched.label("t1"):
            for do in EXPECTED:
                with suppress(httpx.TransportError):
                    await client.post(CHAT, params={"do": do}, json={})
            await client.get("http://workers/v1/models")  # which asks no model
    assert [found(one) for one in attempts(tmp_path)] == list(EXPECTED.values())
    assert [one.streamed for one in attempts(tmp_path)][:2] == [False, True]
    assert {one.sample for one in attempts(tmp_path)} == {"t1"}


def test_each_request_of_a_blocking_client_is_recorded_as_it_ended(tmp_path: Path) -> None:
    inner = httpx.MockTransport(partial(respond, stream=Stream))
    transport = SyncTransport({"w": "http://w"}, inner=lambda: inner, record=tmp_path)
    with httpx.Client(transport=transport) as client, coresched.label("t1"):
        for do in EXPECTED:
            with suppress(httpx.TransportError):
                client.post(CHAT, params={"do": do}, json={})
    assert [found(one) for one in attempts(tmp_path)] == list(EXPECTED.values())


async def test_a_stream_that_is_left_is_none_unless_it_had_said_that_it_was_complete(tmp_path: Path) -> None:
    transport = Transport({"w": "http://w"}, inner=lambda: httpx.MockTransport(respond), record=tmp_path)
    async with httpx.AsyncClient(transport=transport) as client:
        for pieces in (1, 2):
            with coresched.label("t1"):
                async with client.stream("POST", CHAT, params={"do": "stream"}, json={}) as response:
                    async for _ in response.aiter_raw():
                        pieces -= 1
                        if not pieces:
                            break
    reasons = [one.reason for one in attempts(tmp_path)]
    assert reasons == ["its client left before the end of the answer", None]


async def test_a_request_without_connection_is_one_and_that_in_its_place_another(tmp_path: Path) -> None:
    with refusing() as dead, refusing() as other:
        urls = {"a": dead, "b": other}
        router = SharedRouter(list(urls))
        label = next(f"t{n}" for n in range(1000) if router.home(f"t{n}") == "a")
        async with httpx.AsyncClient(transport=Transport(urls, record=tmp_path, router=router)) as client:
            with coresched.label(label), pytest.raises(httpx.ConnectError):
                await client.post(CHAT, json={})
    assert [one.worker for one in attempts(tmp_path)] == ["a", "b"]
    assert all((one.reason or "").startswith("ConnectError: ") for one in attempts(tmp_path))


async def test_a_cancelled_request_is_recorded_as_such(tmp_path: Path) -> None:
    class Hanging(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await asyncio.Event().wait()
            raise AssertionError

    transport = Transport({"w": "http://w"}, inner=Hanging, record=tmp_path)
    async with httpx.AsyncClient(transport=transport) as client:
        with coresched.label("t1"), pytest.raises(TimeoutError):
            await asyncio.wait_for(client.post(CHAT, json={}), 0.05)
    (only,) = attempts(tmp_path)
    assert (only.status, only.reason) == (None, "CancelledError")


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for make in (Transport, SyncTransport):
        with pytest.raises(InputError, match=r"record .*: there is no directory .*; create it first"):
            make(["http://w"], record=tmp_path / "no" / "where")


async def test_a_recording_that_lacks_events_is_an_error_when_the_client_closes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"

    async def run(error: Exception | None) -> None:
        inner = httpx.MockTransport(respond)
        transport = Transport({"w": "http://w"}, inner=lambda: inner, record=folder)
        async with httpx.AsyncClient(transport=transport) as client:
            folder.rmdir()
            with coresched.label("t1"):
                await client.post(CHAT, json={})
            if error is not None:
                raise error

    with pytest.raises(coresched.RecordingError, match="lacks 1 event that could not be written"):
        await run(None)
    with pytest.raises(KeyError):  # which goes on; the other is logged
        await run(KeyError())
    assert "lacks 1 event" in caplog.messages[-1]


def test_a_blocking_client_says_so_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "run"

    def run(error: Exception | None) -> None:
        inner = httpx.MockTransport(partial(respond, stream=Stream))
        transport = SyncTransport({"w": "http://w"}, inner=lambda: inner, record=folder)
        with httpx.Client(transport=transport) as client:
            folder.rmdir()
            with coresched.label("t1"):
                client.post(CHAT, json={})
            if error is not None:
                raise error

    with pytest.raises(coresched.RecordingError, match="lacks 1 event that could not be written"):
        run(None)
    with pytest.raises(KeyError):
        run(KeyError())
    assert "lacks 1 event" in caplog.messages[-1]
