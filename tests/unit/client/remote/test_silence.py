"""A service that does not answer: what is said while that lasts, and at its end."""

import logging
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from fake_batches import UNAVAILABLE, Blocked, FakeBatches
from served import served

import coresched
from coresched import sync
from coresched.client.remote import async_batch, blocking_batch, session
from coresched.v1 import batches_pb2 as pb

ASKED: dict[str, Any] = {"batch": "b", "sample_concurrency": 1, "grace_s": 1}


async def enter(target: str, **options: Any) -> None:
    async with coresched.connect(target, **{**ASKED, **options}):
        pass


async def enter_blocking(target: str, **options: Any) -> None:
    with sync.connect(target, **{**ASKED, **options}):
        pass


BOTH = pytest.mark.parametrize("enter", [enter, enter_blocking], ids=["asyncio", "threads"])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (session, async_batch, blocking_batch):
        monkeypatch.setattr(module, "NOTE_S", 0.2)


@BOTH
async def test_a_wrong_address_is_noted_soon_and_given_up_with_one_error(
    enter: Callable[..., Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The note has a cause from the first attempt on, which on a busy machine takes its time to fail.
    for module in (session, async_batch, blocking_batch):
        monkeypatch.setattr(module, "NOTE_S", 0.8)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(coresched.SessionLostError) as lost:
            await enter(target)
    (note,) = [record for record in caplog.records if record.name == "coresched.client"]
    assert note.levelno == logging.WARNING
    assert note.message.startswith(f"no answer from {target} yet (UNAVAILABLE: ")
    assert note.message.endswith("or correct the address); trying until 1 s have passed")
    assert str(lost.value).startswith(f"{target} has not answered for 1 s (UNAVAILABLE: ")
    assert "start `coresched serve` there" in str(lost.value)
    assert (lost.value.__cause__, lost.value.__context__) == (None, None)
    assert "".join(traceback.format_exception(lost.value)).count("Traceback") == 1


@BOTH
async def test_a_service_that_accepts_and_says_nothing_is_noted_too(
    fake: FakeBatches,
    enter: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("async_link", "blocking_link"):
        monkeypatch.setattr(f"coresched.client.remote.{name}.ATTEMPT_S", 0.6)
    fake.always["OpenBatch"] = lambda *arguments: Blocked(pb.OpenBatchResponse())(*arguments)
    with pytest.raises(
        coresched.SessionLostError, match=r"for 1 s \(DEADLINE_EXCEEDED: Deadline Exceeded\)$"
    ):
        await enter(fake.address)
    said = [record.message for record in caplog.records if record.name == "coresched.client"]
    assert said == [f"no answer from {fake.address} yet; trying until 1 s have passed"]


def test_a_silence_that_ends_is_noted_once_and_its_end_too(
    fake: FakeBatches, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "coresched.client")
    with sync.connect(fake.address, **{**ASKED, "grace_s": 20}) as batch:
        caplog.clear()  # on a slow machine also the start may have been noted
        until = time.monotonic() + 0.8

        def away_until(request: Any, context: Any) -> Any:
            if time.monotonic() < until:
                return UNAVAILABLE(request, context)
            return pb.SubmitSamplesResponse(states=[pb.SAMPLE_STATE_OPEN])

        fake.always["SubmitSamples"] = away_until
        batch.submit(["a"])
    silent, again = [record.message for record in caplog.records if record.name == "coresched.client"]
    assert (
        silent == f"no answer from {fake.address} yet (UNAVAILABLE: not now); trying until 20 s have passed"
    )
    assert again == f"{fake.address} answers again"


@BOTH
async def test_tls_on_one_side_only_is_named(enter: Callable[..., Any], tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    Authority.create(tmp_path, "other")
    certificate, key = authority.issue("server")
    ca = tmp_path / "ca.pem"

    async def said(target: str, **options: Any) -> str:
        with pytest.raises(coresched.SessionLostError) as lost:
            await enter(target, **options)
        return str(lost.value)

    with served() as (target, _):
        assert "speaks no TLS: leave out ca, certificate and key" in await said(target, ca=ca)
    tls = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with served(*tls) as (target, _):
        assert "as a service with TLS does: give ca, and certificate and key if" in await said(target)
        assert "not of the CA that is trusted here: correct ca" in await said(
            target, ca=tmp_path / "other.pem"
        )
    with served(*tls, "--tls-client-ca", str(ca)) as (target, _):
        assert "asks for a client certificate: give certificate and key" in await said(target, ca=ca)
