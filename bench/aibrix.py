"""`python -m bench aibrix`: what a decision of `coresched aibrix` takes, for AIBrix's gateway and in CPU."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from time import monotonic, perf_counter

from rich.console import Console
from rich.table import Table

from bench.gateways.load import Load
from bench.gateways.processes import Program, check_system, free_port, started
from bench.machine import this_machine
from bench.spread import Spread, spread_of
from coresched.cli.parser import CommandParser, add_command
from coresched.errors import InputError

CANDIDATES = (3, 30, 300)
RATES = (100, 500)
"""Requests a second, at random times: an open loop, as a gateway's clients are."""
TIMEOUT_MS = 10.0
"""AIBRIX_EXTERNAL_ROUTER_TIMEOUT unless it is set."""

_READY_IN_S = 30.0
_PROGRAM = "coresched aibrix"
_MEDIA_TYPE = "application/vnd.aibrix.external-routing+json;version=v1alpha1"


@dataclass(frozen=True)
class Row:
    """One load, over rounds. Times in milliseconds; ``late``: of all requests, those over TIMEOUT_MS."""

    candidates: int
    per_second: int
    body_bytes: int
    first_ms: Spread
    """The first request of a new process, which puts all the pods on the ring."""
    p50_ms: Spread
    p99_ms: Spread
    cpu_us: Spread
    late: int
    requests: int


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "aibrix",
        summary="a decision of coresched aibrix",
        description="Ask coresched aibrix for replicas as AIBrix's gateway does, at random times, among 3,\n"
        "30 and 300 candidates: how long an answer takes beside AIBrix's 10 ms, and its CPU time.\n"
        "Two minutes; Linux only.",
        example="python -m bench aibrix --json",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round: to see that it runs, not to quote"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        check_system()
    except InputError as error:
        print(f"python -m bench aibrix: {error}", file=sys.stderr)
        return 2
    machine = this_machine()
    rounds, seconds = (1, 0.5) if args.quick else (5, 2.0)
    try:
        rows = [
            _row(candidates, per_second, rounds, seconds) for candidates in CANDIDATES for per_second in RATES
        ]
    except (OSError, RuntimeError) as error:
        print(f"python -m bench aibrix: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in rows]}, indent=2))
        return 0
    print(f"{machine.cpu}, {machine.cores} cores, load {machine.load}; {rounds} rounds of {seconds:g} s")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("pods", "KiB", "per s", "first ms", "p50 ms", "p99 ms", "CPU us", "over 10 ms"):
        table.add_column(name, justify="right")
    for row in rows:
        spreads = (row.first_ms, row.p50_ms, row.p99_ms, row.cpu_us)
        table.add_row(
            str(row.candidates),
            f"{row.body_bytes / 1024:.1f}",
            str(row.per_second),
            *(f"{spread.median:.3g} ({spread.q1:.3g}-{spread.q3:.3g})" for spread in spreads),
            f"{row.late} of {row.requests}",
        )
    Console().print(table)
    return 0


def _row(candidates: int, per_second: int, rounds: int, seconds: float) -> Row:
    asked = requests(candidates, 400)
    taken = [asyncio.run(_round(asked, per_second, seconds, seed)) for seed in range(rounds)]
    loads = [load for _, load, _ in taken]
    return Row(
        candidates=candidates,
        per_second=per_second,
        body_bytes=len(asked[0].partition(b"\r\n\r\n")[2]),
        first_ms=spread_of([first * 1e3 for first, _, _ in taken]),
        p50_ms=spread_of([load.percentile(0.5) * 1e3 for load in loads]),
        p99_ms=spread_of([load.percentile(0.99) * 1e3 for load in loads]),
        cpu_us=spread_of([cpu_s / len(load.latencies) * 1e6 for _, load, cpu_s in taken]),
        late=sum(latency * 1e3 > TIMEOUT_MS for load in loads for latency in load.latencies),
        requests=sum(len(load.latencies) for load in loads),
    )


def requests(candidates: int, count: int) -> list[bytes]:
    """That many requests, head and body, of 50 trajectories; the counts differ from one to the next."""
    random = Random(7)
    made = []
    for number in range(count):
        request_id = f"{random.getrandbits(128):032x}"
        pods = [
            {
                "id": f"default/qwen-7b-6f9478d69f-{pod:05x}",
                "ports": [8000],
                "attributes": {"topology.kubernetes.io/zone": "eu-1a"},
                "metrics": {"runningRequests": random.randrange(12)},
            }
            for pod in range(candidates)
        ]
        body = json.dumps(
            {
                "apiVersion": "routing.aibrix.ai/v1alpha1",
                "kind": "ReplicaSelectionRequest",
                "metadata": {"requestId": request_id},
                "spec": {"model": "qwen-7b", "policyMode": "Advisory", "candidates": pods},
            },
            separators=(",", ":"),
        ).encode()
        head = (
            f"POST /v1alpha1/select HTTP/1.1\r\nHost: router\r\nUser-Agent: Go-http-client/1.1\r\n"
            f"Content-Length: {len(body)}\r\nAccept: {_MEDIA_TYPE}\r\nContent-Type: {_MEDIA_TYPE}\r\n"
            f"Traceparent: 00-{number % 50 + 1:032x}-{number + 1:016x}-01\r\n"
            f"X-Request-Id: {request_id}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


async def _round(
    asked: Sequence[bytes], per_second: int, seconds: float, seed: int
) -> tuple[float, Load, float]:
    """Seconds of the first request, the others, and the server's CPU seconds for these."""
    port = free_port()
    with started([sys.executable, "-m", "coresched", "aibrix", "--listen", f"127.0.0.1:{port}"]) as program:
        first_connection = await _connected(port, program)
        began = perf_counter()
        await _answered(first_connection, asked[0])
        first_s = perf_counter() - began
        idle = [first_connection]
        random = Random(seed)
        latencies: list[float] = []
        before = program.cpu_s()

        async def one(request: bytes, sent_at: float) -> None:
            connection = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
            await _answered(connection, request)
            latencies.append(perf_counter() - sent_at)
            idle.append(connection)

        began = perf_counter()
        due = 0.0
        under_way = []
        for number in range(int(per_second * seconds)):
            due += random.expovariate(per_second)
            await asyncio.sleep(max(0.0, began + due - perf_counter()))
            under_way.append(asyncio.create_task(one(asked[number % len(asked)], perf_counter())))
        await asyncio.gather(*under_way)
        lasted_s, cpu_s = perf_counter() - began, program.cpu_s() - before
        for _, writer in idle:
            writer.close()
    return first_s, Load(sorted(latencies), lasted_s), cpu_s


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _connected(port: int, program: Program) -> _Connection:
    until = monotonic() + _READY_IN_S
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            if program.has_ended() or monotonic() > until:
                raise RuntimeError(f"{_PROGRAM} did not start: {program.last_words()}") from None
            await asyncio.sleep(0.05)


async def _answered(connection: _Connection, request: bytes) -> None:
    """Raises RuntimeError unless the answer is a decision for a pod."""
    reader, writer = connection
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-2])
    body = await reader.readexactly(int(fields["Content-Length"]))
    if not head.startswith(b"HTTP/1.1 200 ") or b'"Selected"' not in body:
        raise RuntimeError(f"{_PROGRAM} answered {head!r} {body!r}")
