"""What the gateway refuses itself: in OpenAI's form, and before anything reaches a worker."""

import asyncio
import json
from typing import Any

import pytest
from gateways import CHAT, FakeWorker, exchanged, gateway

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


def read(answer: bytes) -> tuple[int, dict[str, str], dict[str, Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert headers["content-type"].startswith("application/json")
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert "\n" not in error["message"]
    return int(status.split()[1]), headers, error


def start(line: str) -> bytes:
    return f"{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("latin-1")


@pytest.mark.parametrize(
    ("request_bytes", "status", "code", "said"),
    [
        (start("GET /v1"), 404, "not_found", "'GET' '/v1' is not served; POST to one of /generate, /v1/"),
        (start("GET /v1/chat/completions"), 404, "not_found", "is not served"),
        (start("POST /v1/chat/../completions"), 404, "not_found", "is not served"),
        (start("POST //evil/v1/completions"), 404, "not_found", "is not served"),
        (start("POST http://evil/v1/completions"), 400, "invalid_request", "this is no forward proxy"),
        (start("GET http://127.0.0.1/v1/models"), 400, "invalid_request", "this is no forward proxy"),
        (start("CONNECT evil:443"), 400, "invalid_request", "this is no forward proxy"),
        (start("OPTIONS *"), 400, "invalid_request", "must be a path, got '*'"),
        (start("GET /v1/models?a=\xff"), 400, "invalid_request", ""),
        (HEAD + b"x-smg-routing-key: a\xff\r\n\r\n", 400, "invalid_label", "x-smg-routing-key must be UTF-8"),
        (HEAD + b"x-session-id:\r\n\r\n", 400, "invalid_label", "header x-session-id must not be empty"),
        (
            HEAD + b'Content-Length: 16\r\n\r\n{"session_id":7}',
            400,
            "invalid_label",
            "body field 'session_id'",
        ),
        (HEAD + b"X-Name: \xe9\r\n\r\n", 400, "invalid_request", "header x-name must be UTF-8"),
        (HEAD + b"Expect: x\r\nContent-Length: 1\r\n\r\n", 417, "invalid_request", "must be 100-continue"),
        (HEAD + b"Content-Length: 2097153\r\n\r\n", 413, "body_too_large", "at most 2 MiB"),
        (HEAD + b"X-Long: " + b"x" * 9000 + b"\r\n\r\n", 400, "invalid_request", ""),
        (HEAD + b"X-Many: 1\r\n" * 200 + b"\r\n", 400, "invalid_request", ""),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "invalid_request", ""),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "invalid_request", ""),
        (b"\x16\x03\x01\x02", 400, "invalid_request", ""),
    ],
)
async def test_a_bad_request_is_refused_in_one_line(
    request_bytes: bytes, status: int, code: str, said: str
) -> None:
    async with gateway(FakeWorker(), max_body_bytes=2 << 20) as running:
        found, _, error = read(await exchanged(running.port, request_bytes))
        assert (found, error["code"], error["type"]) == (status, code, "invalid_request_error")
        assert said in error["message"]
    assert running.workers[0].seen == []


async def test_the_limit_holds_for_a_body_of_unknown_length() -> None:
    async with gateway(FakeWorker(), max_body_bytes=1000) as running:
        chunk = b"1f4\r\n" + b"x" * 500 + b"\r\n"
        head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        status, _, error = read(await exchanged(running.port, head + chunk * 3 + b"0\r\n\r\n"))
        assert (status, error["code"]) == (413, "body_too_large")
        assert (await exchanged(running.port, head + chunk * 2 + b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
    (seen,) = running.workers[0].seen
    assert seen.body == b"x" * 1000


@pytest.mark.parametrize("line", ["POST /v1/completions", "GET /v1/models", "GET /health"])
async def test_without_a_healthy_worker_it_is_503(line: str) -> None:
    async with gateway(FakeWorker(), FakeWorker(), health_interval_s=3600.5) as running:
        request = line.encode() + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert (await exchanged(running.port, request)).startswith(b"HTTP/1.1 200")
        for worker in running.fleet.workers:
            running.fleet.unreachable(worker, "refused")
            worker.recheck.clear()
        status, headers, error = read(await exchanged(running.port, request))
        assert (status, error["code"], error["type"]) == (503, "no_healthy_worker", "server_error")
        assert headers["retry-after"] == "3601"


async def test_what_the_gateway_did_wrong_is_500(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(FakeWorker()) as running:
        monkeypatch.setattr(running.fleet, "route", None)
        status, _, error = read(await exchanged(running.port, HEAD + b"Content-Length: 2\r\n\r\n{}"))
        assert (status, error["code"]) == (500, "internal")


async def test_a_body_that_never_ends_is_not_in_flight() -> None:
    async with gateway(FakeWorker()) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(HEAD + b"Content-Length: 10\r\n\r\n12345")
        assert (await exchanged(running.port, HEAD + b"\r\n")).startswith(b"HTTP/1.1 200")
        assert sum(running.fleet.in_flight().values()) == 0
        writer.close()
    assert [seen.target for seen in running.workers[0].seen] == [CHAT]
