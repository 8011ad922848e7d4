"""`python -m bench service` as its users and their scripts see it, and the parts that its numbers rest on."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from math import isclose
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench.serving.callers import stream, unary
from bench.serving.report import NOTES
from bench.serving.servers import cores_apart, echo_server, our_server, require_clocks, running
from bench.serving.turns import LoadedServer, Turn, in_turns, summarised
from bench.spread import Spread
from coresched.errors import InputError
from coresched.v1 import router_pb2 as pb
from coresched.v1.router_pb2_grpc import RouterStub

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads CPU clocks of other processes")


def bench(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "service", "--quick", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={"PYTHONUTF8": "1"},
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@cache
def report() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bench("--json"))
    return found


def test_every_transport_with_one_call_outstanding_and_with_32() -> None:
    assert report()["command"] == "python -m bench service --quick --json"
    assert report()["machine"].keys() == {"cpu", "cores", "system", "python", "load"}
    assert [(row["case"], row["n"], row["peer"], row["repeats"]) for row in report()["rows"]] == [
        (f"{way}, {transport}", n, "echo", 3)
        for transport in ("tcp", "unix")
        for way in ("stream", "unary")
        for n in (1, 32)
    ]


def test_the_numbers_of_a_row() -> None:
    times = {f"{side}_{name}" for side in ("ours", "peer") for name in ("call", "p50", "p99", "cpu")}
    ratios = {"ratio", "p50_ratio"}
    for row in report()["rows"]:
        assert row.keys() == {
            *("case", "n", "peer", "repeats", "ours_calls_per_s", "peer_calls_per_s"),
            *(f"{name}{part}" for name in times for part in ("_s", "_spread_s")),
            *(f"{name}{part}" for name in ratios for part in ("", "_spread")),
        }
        for middle, spread in (
            *((f"{name}_s", f"{name}_spread_s") for name in times),
            *((name, f"{name}_spread") for name in ratios),
        ):
            q1, q3 = row[spread]
            assert 0 < q1 <= row[middle] <= q3
        for side in ("ours", "peer"):
            assert row[f"{side}_p50_s"] <= row[f"{side}_p99_s"]
            assert isclose(row[f"{side}_calls_per_s"] * row[f"{side}_call_s"], 1)


def test_in_process_the_router_is_timed_alone_and_within_the_calls() -> None:
    router, calls = report()["in_process"]
    assert (router["subject"], calls["subject"]) == ("router", "calls")
    assert 0 < router["cpu_s"] < calls["cpu_s"]


def test_the_table_fits_80_columns() -> None:
    lines = bench().splitlines()
    assert lines[0] == "$ python -m bench service --quick"
    assert max(map(len, lines)) <= 80
    assert lines[-len(NOTES) :] == list(NOTES)
    for row in report()["rows"]:
        assert any(line.startswith(f"{row['case']} ") and line.endswith("x") for line in lines)


@pytest.fixture(scope="module", params=["tcp", "unix"])
def addresses(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    folder = tmp_path_factory.mktemp("s")
    listen = ["127.0.0.1:0"] * 2 if request.param == "tcp" else [f"unix:{folder}/{n}" for n in range(2)]
    usable = os.sched_getaffinity(0)
    with running(our_server(listen[0]), usable) as ours, running(echo_server(listen[1]), usable) as echo:
        yield [ours.address, echo.address]


async def test_answers_of_the_echo_are_as_large_as_ours(addresses: list[str]) -> None:
    route = pb.RouteRequest(request_id="r" * 36, label="task-000001")
    sizes = []
    for address in addresses:
        async with grpc.aio.insecure_channel(address) as channel:
            router = RouterStub(channel)  # type: ignore[no-untyped-call]
            routed = await router.Route(route)
            call = pb.ReleaseRequest(request_id="e" * 36, label=route.label, worker=routed.worker)
            released = await router.Release(call)
            opened = router.RouteStream()
            route.request_id = "s" * 36
            await opened.write(pb.RouteStreamRequest(route=route))
            on_stream = await opened.read()
            call = pb.ReleaseRequest(request_id="f" * 36, label=route.label, worker=on_stream.route.worker)
            await opened.write(pb.RouteStreamRequest(release=call))
            answers = (routed, released, on_stream, await opened.read())
            assert answers[3].HasField("release")
            sizes.append([answer.ByteSize() for answer in answers])
            route.request_id = "r" * 36
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("outstanding", [1, 3])
async def test_as_many_calls_as_asked_and_nothing_left_in_flight(
    addresses: list[str], outstanding: int
) -> None:
    async with grpc.aio.insecure_channel(addresses[0]) as channel:
        for caller in (stream, unary):
            seconds = await caller(channel, outstanding, 20)
            assert len(seconds) == 20
            assert all(taken > 0 for taken in seconds)
            listed = await RouterStub(channel).ListWorkers(pb.ListWorkersRequest())  # type: ignore[no-untyped-call]
            assert sum(worker.in_flight for worker in listed.workers) == 0


class Scripted(LoadedServer):
    """A server whose turns are known."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    async def turn(self, caller: object, outstanding: int, calls: int) -> Turn:
        self.log.append(self.name)
        at = float(len(self.log))
        return Turn(at, 2 * at, 3 * at, 4 * at)


async def test_servers_take_turns_and_the_first_round_is_not_counted() -> None:
    log: list[str] = []
    ours, echo = await in_turns([Scripted("a", log), Scripted("b", log)], stream, 1, 2, 3)
    assert "".join(log) == "ba" + "ab" + "ba" + "ab"
    assert [turn.call_s for turn in ours] == [3.0, 6.0, 7.0]
    assert [turn.call_s for turn in echo] == [4.0, 5.0, 8.0]
    found = summarised(ours)
    assert found.call == Spread(6.0, 4.5, 6.5)
    assert (found.p50.median, found.p99.median, found.cpu.median) == (12.0, 18.0, 24.0)


def test_a_server_that_does_not_start_is_told() -> None:
    with (
        pytest.raises(RuntimeError, match=r"did not start: .*--listen nowhere"),
        running(our_server("nowhere"), os.sched_getaffinity(0)),
    ):
        pass


def test_cores_are_as_before_afterwards() -> None:
    before = os.sched_getaffinity(0)
    with cores_apart() as servers:
        assert os.sched_getaffinity(0) == {min(before)}
        assert servers == {max(before)}
    assert os.sched_getaffinity(0) == before


def test_a_system_without_the_clocks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(InputError, match="run it on Linux"):
        require_clocks()
