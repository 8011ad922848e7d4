"""What a worker gets and what comes back: the same bytes, whatever they are."""

import asyncio
import gzip

import pytest
from aiohttp import web
from gateways import CHAT, FakeWorker, client, exchanged, gateway
from yarl import URL

BODY = b' {"messages" : [], "b": 1e400, "a": "\xc3\xa9\\u00e9", "a": 2}\r\n'


async def test_a_request_goes_on_byte_for_byte() -> None:
    async with gateway(FakeWorker()) as running, client() as session:
        sent = {
            "x-smg-routing-key": "traj 1",
            "Authorization": "Bearer x",
            "X-Odd": "Straße",
            "Cookie": "a=b",
        }
        url = URL(running.url + CHAT + "?api=%2F&x=", encoded=True)
        async with session.post(
            url, data=BODY, headers=sent, skip_auto_headers=["User-Agent", "Content-Type"]
        ) as answer:
            assert answer.headers["x-coresched-worker"] == running.workers[0].url
            assert (answer.status, await answer.json()) == (200, {"port": running.workers[0].port})
    (seen,) = running.workers[0].seen
    assert (seen.method, seen.target, seen.body) == ("POST", CHAT + "?api=%2F&x=", BODY)
    assert sorted((name.lower(), value) for name, value in seen.headers) == [
        ("accept", "*/*"),
        ("accept-encoding", answer.request_info.headers["Accept-Encoding"]),
        ("authorization", "Bearer x"),
        ("content-length", str(len(BODY))),
        ("cookie", "a=b"),
        ("host", f"127.0.0.1:{running.workers[0].port}"),
        ("x-odd", "Straße"),
        ("x-session-id", "traj 1"),
        ("x-smg-routing-key", "traj 1"),
    ]


async def test_nothing_but_the_label_is_added_and_repeated_headers_all_go_on() -> None:
    async with gateway(FakeWorker()) as running:
        lines = b"Host: x\r\nX-A: 1\r\nx-a: 2\r\nX-A: 3\r\nx-session-id: s\r\nContent-Length: 2\r\n"
        await exchanged(running.port, b"POST /generate HTTP/1.1\r\n" + lines + b"\r\n{}")
    (seen,) = running.workers[0].seen
    assert seen.header("x-a") == ["1", "2", "3"]
    assert {name.lower() for name, _ in seen.headers} == {
        *("host", "x-a", "x-session-id", "x-smg-routing-key", "content-length")
    }


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses", "/generate"])
async def test_a_label_from_the_body_reaches_the_worker_as_header(path: str) -> None:
    async with gateway(FakeWorker()) as running, client() as session:
        for body in ({"session_id": "traj-1"}, {}):
            async with session.post(running.url + path, json=body) as answer:
                assert answer.status == 200
        async with session.post(running.url + path, json={}, headers={"X-Session-ID": "s"}) as answer:
            assert answer.status == 200
    by_field, by_beginning, by_header = running.workers[0].seen
    assert by_field.header("x-smg-routing-key") == by_field.header("x-session-id") == ["traj-1"]
    assert by_beginning.header("x-smg-routing-key")[0].startswith("content-")
    assert by_header.header("x-smg-routing-key") == by_header.header("x-session-id") == ["s"]


async def test_a_label_has_one_worker_whatever_it_came_from() -> None:
    async with gateway(*(FakeWorker() for _ in range(3))) as running, client() as session:
        for n in range(60):
            met = set()
            for turn in range(4):
                body = {"messages": [{"role": "user", "content": f"task {n}"}, *[{"role": "tool"}] * turn]}
                async with session.post(running.url + CHAT, json=body) as answer:
                    met.add(answer.headers["x-coresched-worker"])
            assert len(met) == 1
    assert all(worker.seen for worker in running.workers)


async def test_an_answer_comes_back_byte_for_byte() -> None:
    packed = gzip.compress(b"[1, 2]")

    async def respond(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        answer = web.Response(status=418, reason="Odd", body=packed)
        answer.headers.extend(
            {"Content-Encoding": "gzip", "Server": "w", "X-Hop": "1", "Connection": "X-Hop"}
        )
        answer.headers.add("Set-Cookie", "a=1")
        answer.headers.add("Set-Cookie", "b=2")
        return answer

    session = client(auto_decompress=False)
    async with gateway(FakeWorker(respond)) as running, session:
        answer = await session.post(running.url + CHAT, data=b"")
        assert (answer.status, answer.reason, await answer.read()) == (418, "Odd", packed)
        assert answer.headers.getall("Set-Cookie") == ["a=1", "b=2"]
        assert (answer.headers["Server"], answer.headers["Content-Encoding"]) == ("w", "gzip")
        assert "X-Hop" not in answer.headers


async def test_a_redirect_is_passed_back_and_not_followed() -> None:
    other = FakeWorker()
    other.gate.set()
    await other.start()

    async def respond(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": other.url + CHAT})

    async with gateway(FakeWorker(respond)) as running, client() as session:
        answer = await session.post(running.url + CHAT, data=b"x", allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (307, other.url + CHAT)
    assert other.seen == []
    await other.kill()


async def test_events_come_as_they_are_sent() -> None:
    step = asyncio.Semaphore(0)

    async def respond(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for n in range(5):
            await step.acquire()
            await answer.write(b"data: %d\n\n" % n)
        return answer

    async with gateway(FakeWorker(respond)) as running, client() as session:
        answer = await session.post(running.url + CHAT, data=b"{}")  # the headers come before any event
        assert answer.headers["Content-Type"] == "text/event-stream"
        for n in range(5):
            assert sum(running.fleet.in_flight().values()) == 1
            step.release()  # the worker writes the next event only now, after the last was received
            assert await asyncio.wait_for(answer.content.readany(), 20) == b"data: %d\n\n" % n
        assert await answer.content.read() == b""


async def test_long_bodies_go_through_in_both_directions() -> None:
    async def respond(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        return web.Response(body=body[::-1])

    long = bytes(range(256)) * (3 << 12)  # 3 MiB
    async with gateway(FakeWorker(respond)) as running, client() as session:
        async with session.post(running.url + CHAT, data=long, expect100=True) as answer:
            assert await answer.read() == long[::-1]

        async def pieces() -> object:
            for start in range(0, len(long), 1 << 16):
                yield long[start : start + (1 << 16)]

        async with session.post(running.url + CHAT, data=pieces()) as answer:
            assert await answer.read() == long[::-1]
    assert all("Expect" not in dict(seen.headers) for seen in running.workers[0].seen)


async def test_models_come_from_the_first_healthy_worker() -> None:
    async with gateway(FakeWorker(), FakeWorker()) as running, client() as session:
        for expected in (0, 1):
            async with session.get(running.url + "/v1/models") as answer:
                assert await answer.json() == {"port": running.workers[expected].port}
            await running.workers[0].kill()
        assert running.workers[1].seen[0].header("x-smg-routing-key") == []
        assert [worker.requests for worker in running.fleet.workers] == [0, 0]


async def test_a_client_of_http_1_0_gets_its_answer() -> None:
    async with gateway(FakeWorker()) as running:
        request = b"POST /generate HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"
        head, _, body = (await exchanged(running.port, request)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 OK")
        assert body == b'{"port": %d}' % running.workers[0].port
