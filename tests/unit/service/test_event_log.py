"""What happens as log lines: which events, with which fields, and what they never tell."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from grpc import StatusCode

from coresched.service import refusals as refusals_module
from coresched.service.batches import facts
from coresched.service.batches.effects import Effects
from coresched.service.batches.ledger import Ledger
from coresched.service.refusal import RefusedError
from coresched.service.refusals import LINES, PERIOD_S, Refusals
from coresched.service.telemetry.events import log_batch_fact, log_worker_fact, session_mark

SESSION = "a secret session name"
Logged = Callable[..., list[tuple[str, dict[str, Any]]]]


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [(record.event, record.fields) for record in caplog.records]


def happen(*happened: tuple[float, type[facts.Fact], dict[str, Any]]) -> None:
    """A batch of one session, and what follows."""
    ledger = Ledger()
    opened = facts.BatchOpened(
        at=0.0,
        key=1,
        tenant="t",
        batch="b",
        sample_concurrency=2,
        environment_concurrency=None,
        policy="caas",
        band_s=30.0,
        bucket_s=1.0,
        resident_concurrency=3,
    )
    log_batch_fact(opened, ledger.apply(opened))
    for at, kind, values in [
        (0.0, facts.SessionOpened, {"session": SESSION, "grace_s": 30.0}),
        (0.0, facts.SamplesSubmitted, {"session": SESSION, "samples": ["secret sample"]}),
        (1.0, facts.SampleClaimed, {"session": SESSION, "sample": "secret sample"}),
        *happened,
    ]:
        fact: Any = kind(at=at, key=1, **values)
        effects: Effects = ledger.apply(fact)
        log_batch_fact(fact, effects)


def test_a_batch_from_opening_to_close(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    happen(
        (2.0, facts.TurnStarted, {"sample": "secret sample", "worker": ""}),
        (5.0, facts.TurnFinished, {"sample": "secret sample", "failed": False}),
        (6.0, facts.SampleEnded, {"sample": "secret sample", "withdrawn": False}),
        (7.0, facts.SessionEnded, {"session": SESSION, "left": True}),
    )
    opened, session, ended, closed = events(caplog)
    of = {"tenant": "t", "batch": "b"}
    assert opened[0] == "batch_opened"
    limits = {"sample_concurrency": 2, "environment_concurrency": None, "resident_concurrency": 3}
    assert opened[1].items() >= {**of, **limits}.items()
    assert caplog.messages[0].endswith("environment concurrency without limit, resident concurrency 3")
    assert session == ("session_opened", {**of, "session": session_mark(SESSION)})
    assert ended == ("session_ended", {**of, "session": session_mark(SESSION)})
    assert closed[0] == "batch_closed"
    expected = {**of, "samples": 1, "finished": 1, "turns": 1, "makespan_s": 5.0, "elapsed_s": 7.0}
    assert closed[1].items() >= {**expected, "inference_s": 3.0}.items()
    assert caplog.messages[-1] == "batch 'b' closed, 1 of 1 samples finished, makespan 5.0 s"
    assert "secret" not in caplog.text


def test_a_session_that_was_silent_and_a_batch_that_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    happen(
        (40.0, facts.SessionEnded, {"session": SESSION, "left": False}),
        (41.0, facts.SessionOpened, {"session": "another secret", "grace_s": 1.0}),
        (42.0, facts.BatchClosed, {}),
    )
    assert [(name, fields.get("session")) for name, fields in events(caplog)[2:]] == [
        ("session_expired", session_mark(SESSION)),
        ("session_opened", session_mark("another secret")),
        ("session_ended", session_mark("another secret")),
        ("batch_closed", None),
    ]
    assert caplog.records[2].levelno == logging.WARNING
    assert caplog.messages[4].endswith("ended: its batch was closed")
    assert caplog.messages[5] == "batch 'b' closed, 0 of 1 samples finished"


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_an_environment_slot_that_returned(caplog: pytest.LogCaptureFixture, level: int) -> None:
    caplog.set_level(level)
    happen(
        (2.0, facts.EnvironmentRequested, {"sample": "secret sample", "since": 2.0, "max_s": 9.0}),
        (11.0, facts.EnvironmentEnded, {"sample": "secret sample", "how": "expired"}),
        (12.0, facts.EnvironmentEnded, {"sample": "secret sample", "how": "completed"}),
    )
    (expired,) = events(caplog)[2:]
    assert expired[0] == "environment_expired"
    assert expired[1]["held_s"] == 9.0
    assert ("secret sample" in caplog.text) is (level == logging.DEBUG)
    assert (expired[1].get("sample") == "secret sample") is (level == logging.DEBUG)


def test_workers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_worker_fact(facts.WorkerRegistered(at=0.0, tenant="ops", worker="w0", weight=2.0))
    log_worker_fact(facts.WorkerDrained(at=0.0, worker="w0", in_flight=3))
    log_worker_fact(facts.WorkerRemoved(at=0.0, worker="w\n0"))
    assert events(caplog) == [
        ("worker_registered", {"worker": "w0", "tenant": "ops", "weight": 2.0}),
        ("worker_drained", {"worker": "w0", "tenant": "", "in_flight": 3}),
        ("worker_removed", {"worker": "w\n0", "tenant": "", "in_flight": 0}),
    ]
    assert caplog.messages[1:] == ["worker 'w0' drained, 3 in flight", "worker 'w\\n0' removed, 0 in flight"]


def test_refusals_are_logged_at_a_bounded_rate(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now = 1000.0
    monkeypatch.setattr(refusals_module.time, "monotonic", lambda: now)
    refused = RefusedError(StatusCode.NOT_FOUND, "sample", "sample must be known, got 'secret'")
    refusals = Refusals()
    for _ in range(LINES + 5):
        refusals.note("StartTurn", refused)
    assert len(caplog.records) == LINES
    now += PERIOD_S
    refusals.note("StartTurn", refused)
    assert caplog.messages[-1] == ("StartTurn refused: NOT_FOUND, sample (5 other refusals were not logged)")
    assert events(caplog)[-1][1] == {
        "rpc": "StartTurn",
        "code": "NOT_FOUND",
        "field": "sample",
        "left_out": 5,
    }
    assert refusals.counts == {("StartTurn", "NOT_FOUND"): LINES + 6}
    assert "secret" not in caplog.text
    caplog.set_level(logging.DEBUG)
    refusals.note("StartTurn", refused)
    assert events(caplog)[-1][1]["refusal"] == refused.message
