"""Requests of an HTTP client as turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from coresched_harness.held import GateFailure
from coresched_harness.labelled import Labelling

from coresched.client.gate import Gate

ANSWER = {
    "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
}


class LabellingClient(Labelling, httpx.Client):
    pass


def client(answer: Callable[[httpx.Request], httpx.Response]) -> LabellingClient:
    return LabellingClient(transport=httpx.MockTransport(answer), base_url="http://model/v1")


@pytest.fixture
def gate() -> Iterator[Gate]:
    with Gate(sample_concurrency=1) as gate:
        yield gate


def test_a_request_outside_of_a_sample_stays_as_it_is(gate: Gate) -> None:
    seen: list[httpx.Request] = []
    client(lambda request: (seen.append(request), httpx.Response(200))[1]).post("chat")
    assert "x-smg-routing-key" not in seen[0].headers
    assert gate.report().totals.turns == 0


def test_each_attempt_is_a_turn_with_its_label_and_a_refused_one_a_failed_turn(gate: Gate) -> None:
    answers = [httpx.Response(503), httpx.Response(200, json=ANSWER)]
    seen: list[httpx.Request] = []
    http = client(lambda request: (seen.append(request), answers.pop(0))[1])
    with gate.sample("task-1"):
        assert http.post("chat").status_code == 503
        assert http.post("chat").json() == ANSWER
        assert http.sent_by_this_thread() == 2
    assert [request.headers["x-smg-routing-key"] for request in seen] == ["task-1", "task-1"]
    totals = gate.report().totals
    assert totals.turns == 1
    assert totals.failed_inference_s > 0


def test_a_request_that_gets_no_answer_is_a_failed_turn(gate: Gate) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with gate.sample("task-1"), pytest.raises(httpx.ConnectError):
        client(refuse).post("chat")
    assert gate.report().totals.failed_inference_s > 0


def test_a_routed_turn_goes_to_its_worker() -> None:
    seen: list[httpx.Request] = []
    http = client(lambda request: (seen.append(request), httpx.Response(200))[1])
    with Gate(sample_concurrency=1, workers=["http://10.0.0.1:30000/pool"]) as gate, gate.sample("task-1"):
        http.post("chat", json={})
    assert str(seen[0].url) == "http://10.0.0.1:30000/pool/v1/chat"
    assert seen[0].headers["host"] == "10.0.0.1:30000"


def test_a_worker_without_a_url_ends_the_run() -> None:
    http = client(lambda request: httpx.Response(200))
    with (
        Gate(sample_concurrency=1, workers=["w0"]) as gate,
        pytest.raises(GateFailure, match="'w0' is no base URL"),
        gate.sample("task-1"),
    ):
        http.post("chat")
