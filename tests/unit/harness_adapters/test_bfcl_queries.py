"""Queries of BFCL's handlers: labelled by their OpenAI client, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from coresched_bfcl.queries import Queries
from coresched_harness.held import GateFailure
from model_workers import model_workers

from coresched.client.gate import Gate
from coresched.errors import InputError


class Handler:
    """As BFCL's are: a client, and a method for each way to ask."""

    def __init__(self, url: str) -> None:
        self.client: Any = openai.OpenAI(base_url=url, api_key="none", max_retries=0)

    def _query_FC(self, inference_data: dict[str, Any]) -> Any:
        messages: Any = [{"role": "user", "content": "?"}]
        return self.client.chat.completions.create(model="say", messages=messages)

    _query_prompting = _query_FC


class Elsewhere(Handler):
    """Sends by other means than the client that it has."""

    def _query_FC(self, inference_data: dict[str, Any]) -> Any:
        return threading.get_ident()


class Other(Elsewhere):
    def __init__(self) -> None:
        self.client = object()


@pytest.fixture
def gate() -> Iterator[Gate]:
    with Gate(sample_concurrency=8) as gate:
        yield gate


def ask(gate: Gate, handler: Handler, sample: str) -> None:
    with gate.sample(sample):
        assert handler._query_FC({})


def test_requests_carry_the_label_of_the_sample_that_asks(gate: Gate) -> None:
    with model_workers(1) as (worker,):
        handler = Handler(f"{worker.url}/v1")
        Queries(handler).install()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: ask(gate, handler, f"task-{number}"), range(4)))
        handler._query_prompting({})
        assert sorted(str(seen.label) for seen in worker.seen) == ["None", *(f"task-{n}" for n in range(4))]
    assert gate.report().totals.turns == 4


def test_a_handler_that_goes_around_its_client_is_warned_of_once(
    gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = Elsewhere("http://127.0.0.1:9/v1")
    Queries(handler).install()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ask(gate, handler, f"task-{number}"), range(8)))
    assert capsys.readouterr().err.count("warning: bfcl's Elsewhere sends by other means") == 1
    before = gate.report().totals.turns
    ask(gate, handler, "task-8")
    assert gate.report().totals.turns == before + 1


def test_a_handler_without_such_a_client_has_a_turn_for_each_query(
    gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = Other()
    Queries(handler).install()
    assert "warning: bfcl's Other sends by other means" in capsys.readouterr().err
    ask(gate, handler, "task-1")
    assert gate.report().totals.turns == 1


def test_what_cannot_be_routed_is_refused_where_it_has_to_be(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORESCHED_WORKERS", "http://w0")
    with pytest.raises(InputError, match="Other sends by other means"):
        Queries(Other())
    handler = Elsewhere("http://127.0.0.1:9/v1")
    Queries(handler).install()
    with pytest.raises(GateFailure, match="cannot be routed"):
        ask(gate, handler, "task-1")
