"""What `coresched serve` writes on stderr, as JSON and as text, and what it keeps to itself."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import grpc
import pytest
from batch_clients import Client, Record
from served import served

from coresched.v1 import batches_pb2 as pb
from coresched.v1 import router_pb2
from coresched.v1.batches_pb2_grpc import BatchesStub
from coresched.v1.router_pb2_grpc import RouterStub

TOKEN = "a token that nobody may read".replace(" ", "-")


async def worked_on(address: str) -> str:
    """Six samples from opening to close, a worker that comes and goes, a refusal; the session's name."""
    client = Client(address, "eval 'one'", Record(2, 1), random.Random(3), grace_s=30)
    await client.join([f"secret-{number}" for number in range(6)])
    await client.run(3)
    async with grpc.aio.insecure_channel(address) as channel:
        router = RouterStub(channel)
        of = {"worker": "w9"}
        await router.RegisterWorker(router_pb2.RegisterWorkerRequest(request_id="1", **of))
        await router.DrainWorker(router_pb2.DrainWorkerRequest(request_id="2", **of))
        await router.RemoveWorker(router_pb2.RemoveWorkerRequest(request_id="3", **of))
        stub = BatchesStub(channel)
        turn = pb.StartTurnRequest(request_id="4", session=client.session, sample="secret-0")
        with pytest.raises(grpc.aio.AioRpcError, match="secret-0"):
            await stub.StartTurn(turn)
    await client.call("LeaveBatch", pb.LeaveBatchRequest(request_id="5", session=client.session))
    await client.close()
    return client.session


async def test_json_lines_of_a_run() -> None:
    with served("--log", "json") as (address, process):
        session = await worked_on(address)
        process.terminate()
        out, err = await asyncio.to_thread(process.communicate, timeout=20)
    assert out == ""
    lines = [json.loads(line) for line in err.splitlines()]
    assert Counter(line["event"] for line in lines) == {
        "batch_opened": 1,
        "session_opened": 1,
        "worker_registered": 1,
        "worker_drained": 1,
        "worker_removed": 1,
        "refused": 1,
        "session_ended": 1,
        "batch_closed": 1,
    }
    closed = lines[-1]
    assert (closed["event"], closed["batch"], closed["finished"]) == ("batch_closed", "eval 'one'", 6)
    assert closed["makespan_s"] > 0
    assert "secret" not in err
    assert session not in err


async def test_text_at_a_level(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([{"tenant": "t", "token": TOKEN}]))
    options = ("--log-level", "warning", "--tokens", str(tokens))
    with served(*options) as (address, process):
        async with grpc.aio.insecure_channel(address) as channel:
            call = BatchesStub(channel).ListBatches(
                pb.ListBatchesRequest(), metadata=(("authorization", f"Bearer {TOKEN}x"),)
            )
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        tokens.write_text("nothing to read")
        process.send_signal(1)
        assert process.stderr is not None
        line = await asyncio.to_thread(process.stderr.readline)
        assert line.startswith(f"coresched serve: --tokens '{tokens}' must be JSON")
        process.terminate()
        assert await asyncio.to_thread(process.communicate, timeout=20) == ("", "")
