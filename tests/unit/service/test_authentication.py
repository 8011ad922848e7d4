"""Tokens at a grpc.aio server: the caller reaches every kind of handler; without a token nobody does."""

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from coresched.service.authentication import Authentication
from coresched.service.identity import Caller, current_caller, current_tenant
from coresched.service.tokens import Tokens

TOKENS = {"a": "token of tenant a", "b": "token of tenant b"}
Metadata = tuple[tuple[str, str], ...]


def tokens_of(*tenants: str) -> Tokens:
    return Tokens({sha256(TOKENS[t].encode()).digest(): Caller(t, t == "a") for t in tenants})


def presented(tenant: str) -> Metadata:
    return (("authorization", f"Bearer {TOKENS[tenant]}"),)


async def _unary(request: object, context: object) -> bytes:
    return current_tenant().encode()


async def _unary_stream(request: object, context: object) -> AsyncIterator[bytes]:
    for _ in range(2):
        yield current_tenant().encode()


async def _stream_unary(requests: AsyncIterator[bytes], context: object) -> bytes:
    async for _ in requests:
        pass
    return current_tenant().encode()


async def _stream_stream(requests: AsyncIterator[bytes], context: Any) -> None:
    async for _ in requests:
        await context.write(current_tenant().encode())


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, Authentication]]:
    authentication = Authentication(tokens_of("a", "b"))
    server = grpc.aio.server(interceptors=[authentication])
    handlers = {
        "UnaryUnary": grpc.unary_unary_rpc_method_handler(_unary),
        "UnaryStream": grpc.unary_stream_rpc_method_handler(_unary_stream),
        "StreamUnary": grpc.stream_unary_rpc_method_handler(_stream_unary),
        "StreamStream": grpc.stream_stream_rpc_method_handler(_stream_stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Who", handlers),))
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}", authentication
    await server.stop(0)


async def _messages(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b""


async def answers(
    channel: grpc.aio.Channel, kind: str, metadata: Metadata | None, count: int = 2
) -> list[bytes]:
    match kind:
        case "UnaryUnary":
            return [await channel.unary_unary("/Who/UnaryUnary")(b"", metadata=metadata)]
        case "UnaryStream":
            return [m async for m in channel.unary_stream("/Who/UnaryStream")(b"", metadata=metadata)]
        case "StreamUnary":
            return [await channel.stream_unary("/Who/StreamUnary")(_messages(count), metadata=metadata)]
        case _:
            call = channel.stream_stream(f"/Who/{kind}")(_messages(count), metadata=metadata)
            return [m async for m in call]


KINDS = ["UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream"]


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_handler_serves_the_tenant_of_its_own_call(
    server: tuple[str, Authentication], kind: str
) -> None:
    async with grpc.aio.insecure_channel(server[0]) as channel:
        for tenant in "abba":
            assert set(await answers(channel, kind, presented(tenant))) == {tenant.encode()}


async def test_streams_that_are_open_at_once_keep_their_own_tenant(
    server: tuple[str, Authentication],
) -> None:
    async with grpc.aio.insecure_channel(server[0]) as channel:
        calls = [(t, channel.stream_stream("/Who/StreamStream")(metadata=presented(t))) for t in "abab"]
        for _ in range(3):
            for _, call in calls:
                await call.write(b"")
            for tenant, call in reversed(calls):
                assert await call.read() == tenant.encode()
        for _, call in calls:
            await call.done_writing()


REFUSED: list[tuple[str, Metadata | None]] = [
    ("none", None),
    ("empty", (("authorization", ""),)),
    ("scheme alone", (("authorization", "Bearer "),)),
    ("no scheme", (("authorization", TOKENS["a"]),)),
    ("another scheme", (("authorization", f"Basic {TOKENS['a']}"),)),
    ("another key", (("token", f"Bearer {TOKENS['a']}"),)),
    ("twice", (*presented("a"), *presented("a"))),
    ("cut short", (("authorization", f"Bearer {TOKENS['a'][:-1]}"),)),
    ("another", (("authorization", "Bearer an unknown token"),)),
]


@pytest.mark.parametrize("kind", [*KINDS, "Unknown"])
@pytest.mark.parametrize("metadata", [m for _, m in REFUSED], ids=[name for name, _ in REFUSED])
async def test_who_has_no_token_is_refused_whatever_is_called(
    server: tuple[str, Authentication], kind: str, metadata: Metadata | None
) -> None:
    async with grpc.aio.insecure_channel(server[0]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await answers(channel, kind, metadata, count=1)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert refused.value.details().startswith("metadata authorization must ")
    assert "token of tenant" not in refused.value.details()
    assert "unknown token" not in refused.value.details()


async def test_a_stream_is_refused_before_its_client_has_said_anything(
    server: tuple[str, Authentication],
) -> None:
    async with grpc.aio.insecure_channel(server[0]) as channel:
        call = channel.stream_stream("/Who/StreamStream")()
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_health_needs_no_token_and_the_scheme_is_read_in_any_case(
    server: tuple[str, Authentication],
) -> None:
    async with grpc.aio.insecure_channel(server[0]) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        lower = (("authorization", f"bearer {TOKENS['b']}"),)
        assert await answers(channel, "UnaryUnary", lower) == [b"b"]


async def test_tokens_that_are_replaced_hold_from_the_next_call_on(
    server: tuple[str, Authentication],
) -> None:
    address, authentication = server
    async with grpc.aio.insecure_channel(address) as channel:
        opened = channel.stream_stream("/Who/StreamStream")(metadata=presented("a"))
        await opened.write(b"")
        assert await opened.read() == b"a"
        authentication.tokens = tokens_of("b")
        with pytest.raises(grpc.aio.AioRpcError):
            await answers(channel, "UnaryUnary", presented("a"))
        assert await answers(channel, "UnaryUnary", presented("b")) == [b"b"]
        await opened.write(b"")
        assert await opened.read() == b"a"
        await opened.done_writing()


def test_without_tokens_everyone_is_one_tenant_that_may_do_everything() -> None:
    assert current_caller() == Caller("", True)
    assert current_tenant() == ""
