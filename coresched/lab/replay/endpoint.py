"""The HTTP side: what an endpoint says of itself, and one request for one reply."""

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
import msgspec

from coresched.errors import InputError
from coresched.lab.replay.failure import EndpointError
from coresched.lab.replay.protocol import Answer, Protocol, ProtocolName, openai, sglang

WORKER_HEADER: Final = "x-coresched-worker"
"""Which worker a gateway of ours chose."""
VIRTUAL_FIRST_TOKEN_HEADER: Final = "x-coresched-first-token-s"
"""The first token's time on a simulated worker's own clock, which `speed` does not change."""

CONNECT_S: Final = 10.0
LOOK_S: Final = 10.0
FLUSH_S: Final = 60.0
# Uvicorn drops a connection after 5 s without a request, perhaps in the moment in which one is sent.
IDLE_CONNECTION_S: Final = 2.0
_MAY_PASS: Final = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Endpoint:
    """An engine, or a gateway in front of several, by its name on the ring and its base URL."""

    name: str
    url: str

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class Served:
    """What ``GET /v1/models`` says: the first model, who made the server, the longest context if told."""

    model: str
    owned_by: str
    longest_context: int | None

    @property
    def protocol(self) -> ProtocolName:
        """SGLang's own where the server is one that has it."""
        return "sglang" if self.owned_by in ("sglang", "coresched") else "openai"


@dataclass(frozen=True)
class Reply:
    """An answer, which worker gave it if a gateway said so, and the first token's time if an engine did."""

    answer: Answer
    worker: str | None
    virtual_first_token_s: float | None


@asynccontextmanager
async def http_session(timeout_s: float) -> AsyncIterator[aiohttp.ClientSession]:
    """A session that goes nowhere else: no proxies, no cookies, as many connections as there are requests."""
    timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    ) as session:
        yield session


async def look(session: aiohttp.ClientSession, endpoints: Sequence[Endpoint]) -> list[Served]:
    """What each endpoint serves. Raises InputError for one that does not answer."""
    return await asyncio.gather(*(_look(session, endpoint) for endpoint in endpoints))


async def _look(session: aiohttp.ClientSession, endpoint: Endpoint) -> Served:
    url = f"{endpoint.url}/v1/models"
    try:
        timeout = aiohttp.ClientTimeout(total=LOOK_S, sock_connect=CONNECT_S)
        async with session.get(url, timeout=timeout) as response:
            content = await response.read()
            status = response.status
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
        raise InputError(
            f"--endpoint {endpoint}: {_reason(error, LOOK_S)}; start it, or correct the URL"
        ) from None
    if status != 200:
        raise InputError(
            f"--endpoint {endpoint}: GET /v1/models was answered with {status}: {_said(content)}"
        )
    try:
        model = _decode_models(content).data[0]
    except (msgspec.DecodeError, IndexError):
        raise InputError(f"--endpoint {endpoint}: GET /v1/models names no model: {_said(content)}") from None
    return Served(model.id, model.owned_by, model.max_model_len)


class _Model(msgspec.Struct):
    id: str
    owned_by: str = ""
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


_decode_models = msgspec.json.Decoder(_Models).decode


def protocol_for(asked: ProtocolName | None, served: Sequence[Served], model: str | None) -> Protocol:
    """The protocol asked for, or the one that all endpoints have. Raises InputError where they differ."""
    names = {one.protocol for one in served}
    if asked is None and len(names) > 1:
        raise InputError("the endpoints are of different kinds; say --protocol sglang or --protocol openai")
    name = asked or names.pop()
    return sglang() if name == "sglang" else openai(model or served[0].model)


async def flush_caches(
    session: aiohttp.ClientSession, endpoints: Sequence[Endpoint], served: Sequence[Served]
) -> None:
    """Empty the prefix caches of SGLang and vLLM, which an earlier replay may have filled.

    Raises InputError for an endpoint that cannot.
    """
    for endpoint, one in zip(endpoints, served, strict=True):
        is_vllm = one.owned_by == "vllm"
        path = "/reset_prefix_cache" if is_vllm else "/flush_cache"
        try:
            async with session.post(
                endpoint.url + path, timeout=aiohttp.ClientTimeout(total=FLUSH_S)
            ) as response:
                content, status = await response.read(), response.status
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            raise InputError(f"--flush-cache: {endpoint}: {_reason(error, FLUSH_S)}") from None
        if status == 404 and is_vllm:
            raise InputError(
                f"--flush-cache: {endpoint} has no POST {path}; start vLLM with VLLM_SERVER_DEV_MODE=1, or "
                "leave the flag out"
            )
        # vLLM answers 200 also where requests hold blocks and nothing was emptied.
        if status != 200 or (is_vllm and b"false" in content):
            raise InputError(
                f"--flush-cache: {endpoint} answered {status}: {_said(content)}; restart it, or leave the "
                "flag out"
            )


async def generate(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    protocol: Protocol,
    body: bytes,
    headers: dict[str, str],
) -> Reply:
    """Post one request and read its answer. Raises EndpointError."""
    try:
        async with session.post(
            endpoint.url + protocol.path,
            data=io.BytesIO(body),  # bytes of more than 1 MiB would be sent in one piece
            headers={"Content-Type": "application/json", **headers},
            allow_redirects=False,
        ) as response:
            content = await response.read()
            status, told = response.status, response.headers
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
        if isinstance(error, asyncio.TimeoutError) and not isinstance(error, aiohttp.ClientError):
            allowed = f"did not answer within {session.timeout.total:g} s (--request-timeout-s)"
            raise EndpointError(allowed, may_retry=True, timed_out=True) from None
        raise EndpointError(_reason(error), may_retry=True) from None
    if status != 200:
        raise EndpointError(f"answered {status}: {_said(content)}", may_retry=status in _MAY_PASS)
    virtual = told.get(VIRTUAL_FIRST_TOKEN_HEADER)
    return Reply(protocol.read(content), told.get(WORKER_HEADER), None if virtual is None else float(virtual))


def _reason(error: Exception, within_s: float | None = None) -> str:
    if isinstance(error, aiohttp.ServerTimeoutError):
        return f"cannot be connected to within {CONNECT_S:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"cannot be connected to ({os.strerror(number) if number and number > 0 else error.os_error})"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed the connection before it answered"
    if isinstance(error, asyncio.TimeoutError):
        return f"did not answer within {within_s:g} s" if within_s else "did not answer in time"
    return f"broke off ({type(error).__name__}: {error})"


def _said(content: bytes) -> str:
    """The message of an error body in the forms that engines have, or how the body begins."""
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if isinstance(body, dict):
        error = body.get("error")
        for message in (error.get("message") if isinstance(error, dict) else error, body.get("message")):
            if isinstance(message, str):
                return _line(message)
    return _line(content.decode(errors="replace")) or "nothing"


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
