"""`coresched batch` against a real service, and what becomes of batches whose processes were killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Authority
from served import CHECKOUT, served

import coresched
from coresched import sync

DIES = """
import os, sys
from coresched import sync
batch = sync.connect(sys.argv[1], batch=sys.argv[2], sample_concurrency=2, grace_s=1).__enter__()
batch.submit(["x", "y"])
with batch.sample("x"):
    pass
os.kill(os.getpid(), 9)
"""


def coresched_(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "80"}
    environment.pop("GRPC_VERBOSITY", None)
    command = [sys.executable, "-m", "coresched", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


def die_in(address: str, batch: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    died = subprocess.run([sys.executable, "-c", DIES, address, batch], env=environment, timeout=60)
    assert died.returncode == -9


def listed(address: str) -> list[dict[str, object]]:
    done = coresched_("batch", "list", "--json", "--service", address)
    assert (done.returncode, done.stderr) == (0, "")
    batches: list[dict[str, object]] = json.loads(done.stdout)
    return batches


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_killed_harnesses_leave_batches_that_can_be_gone_on_with_listed_and_closed() -> None:
    with served("--max-open-batches", "2") as (address, _):
        die_in(address, "run1")
        until(lambda: listed(address)[0]["abandoned_s"] is not None)
        die_in(address, "run2")
        until(lambda: all(batch["abandoned_s"] is not None for batch in listed(address)))
        with sync.connect(address, batch="run2", sample_concurrency=2) as again:  # it is gone on with
            with pytest.raises(coresched.SampleEndedError), again.sample("x"):
                pass
            shown = listed(address)
            assert [(batch["batch"], batch["sessions"]) for batch in shown] == [("run2", 1), ("run1", 0)]
            top = json.loads(coresched_("top", "--json", address).stdout)["batches"]
            assert [batch["batch"] for batch in top] == ["run2", "run1"]
            table = coresched_("batch", "list", "--service", address).stdout.splitlines()
            assert table[0].split() == ["batch", "processes", "samples", "ended", "elapsed"]
            assert table[3].split()[:4] == ["run1", "0", "2", "1"]
            assert "abandoned for 0:0" in table[3]
            with sync.connect(address, batch="run3", sample_concurrency=2):  # in the place of run1
                assert {batch["batch"] for batch in listed(address)} == {"run2", "run3"}
                with (
                    pytest.raises(coresched.ServiceLimitError, match="with `coresched batch close NAME`"),
                    sync.connect(address, batch="run4", sample_concurrency=2),
                ):
                    pass
        die_in(address, "run5")
        with (
            pytest.raises(
                ValueError, match=r"options must .* end it for good with `coresched batch close NAME`"
            ),
            sync.connect(address, batch="run5", sample_concurrency=3),
        ):
            pass
        closed = coresched_("batch", "close", "run5", "--service", address)
        assert (closed.returncode, closed.stderr) == (0, "")
        assert closed.stdout == "batch 'run5' closed: 1 of 2 samples finished\n"
        assert coresched_("batch", "list", "--service", address).stdout == "no open batch\n"


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    certificate, key = authority.issue("server")
    Authority.create(tmp_path, "other")
    other = str(tmp_path / "other.pem")

    def refused(*arguments: str, code: int) -> str:
        done = coresched_(*arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
        return done.stderr

    with served("--tls-certificate", str(certificate), "--tls-key", str(key)) as (address, process):
        said = refused("batch", "list", "--service", address, code=1)
        assert said.startswith(f"coresched batch: no answer from {address}: ")
        assert "as a service with TLS does: give --ca" in said
        said = refused("top", "--once", address, "--ca", other, code=1)
        assert "its certificate is not of the CA that is trusted here: correct --ca" in said
        ca = str(tmp_path / "ca.pem")
        said = refused("batch", "close", "none", "--service", address, "--ca", ca, code=2)
        assert said.startswith(
            "coresched batch: batch must be known, got 'none', which is not; `coresched batch"
        )
        process.kill()
        process.wait()
        said = refused("batch", "list", "--service", address, code=1)
        assert "start `coresched serve` there, or correct the address" in said
    said = refused("batch", "list", "--service", address, "--ca", str(tmp_path / "no.pem"), code=2)
    assert said.startswith("coresched batch: --ca ")
