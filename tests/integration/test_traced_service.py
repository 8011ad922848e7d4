"""`coresched serve` in a process where an SDK is configured, and in one where none is even loaded."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import grpc
from served import CHECKOUT

from coresched.v1 import batches_pb2 as pb
from coresched.v1.batches_pb2_grpc import BatchesStub

SERVE = """
import sys
from coresched.cli.main import main
{configure}
code = main(["serve", "--listen", "127.0.0.1:0", "--journal", "none", "--log-level", "error"])
{finish}
sys.exit(code)
"""
CONFIGURE = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
provider = TracerProvider()
spans = open({path!r}, "w")
one_line = lambda span: span.to_json(indent=None) + "\\n"
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=spans, formatter=one_line)))
trace.set_tracer_provider(provider)
"""
TRACEPARENT = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


async def one_sample(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = BatchesStub(channel)
        options = pb.BatchOptions(sample_concurrency=1)
        opening = pb.OpenBatchRequest(request_id="o", batch="b", options=options)
        of = {"session": (await stub.OpenBatch(opening)).session, "sample": "a"}
        samples = pb.SubmitSamplesRequest(request_id="s", session=of["session"], samples=["a"])
        await stub.SubmitSamples(samples)
        wait = pb.AwaitAdmissionRequest(request_id="w", **of)
        await stub.AwaitAdmission(wait, metadata=(TRACEPARENT,))
        await stub.StartTurn(pb.StartTurnRequest(request_id="t", **of))
        await stub.FinishTurn(pb.FinishTurnRequest(request_id="f", **of))
        await stub.FinishSample(pb.FinishSampleRequest(request_id="e", **of))


async def served_once(script: str) -> str:
    """Serve one sample with the script; what else it said on stdout."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            await one_sample(process.stdout.readline().split()[-1])
        finally:
            process.terminate()
        out, _ = await asyncio.to_thread(process.communicate, timeout=20)
        assert process.returncode == 0
    return out


async def test_spans_are_in_the_trace_of_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "spans"
    configure = CONFIGURE.format(path=str(path))
    await served_once(SERVE.format(configure=configure, finish="provider.shutdown(); spans.close()"))
    admission, turn, sample = (json.loads(line) for line in path.read_text().splitlines())
    assert [span["name"] for span in (admission, turn, sample)] == ["admission", "turn", "sample"]
    trace = {span["context"]["trace_id"] for span in (admission, turn, sample)}
    assert trace == {"0x" + TRACEPARENT[1].split("-")[1]}
    assert sample["parent_id"] == "0x" + TRACEPARENT[1].split("-")[2]
    assert turn["parent_id"] == admission["parent_id"] == sample["context"]["span_id"]
    assert sample["attributes"]["coresched.sample"] == "a"


async def test_nothing_is_loaded_where_nothing_is_configured() -> None:
    finish = 'print(any(name.startswith(("opentelemetry", "prometheus_client")) for name in sys.modules))'
    assert await served_once(SERVE.format(configure="", finish=finish)) == "False\n"
