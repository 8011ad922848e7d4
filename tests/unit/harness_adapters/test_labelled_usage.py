"""The usage of an answer, from its body or from what a client made of it, on its way to the turn."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from coresched_harness.usage import record_usage, usage_of_answer, usage_of_body

from coresched.client.gate import Gate
from coresched.recording.usage import Usage

CHAT: dict[str, Any] = {
    "prompt_tokens": 9,
    "completion_tokens": 4,
    "prompt_tokens_details": {"cached_tokens": 5},
}
RESPONSES: dict[str, Any] = {
    "input_tokens": 9,
    "output_tokens": 4,
    "input_tokens_details": {"cached_tokens": 5},
}
COUNTED = Usage(prompt_tokens=9, cached_tokens=5, output_tokens=4)


def objects(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return SimpleNamespace(**{name: objects(field) for name, field in value.items()})


@pytest.mark.parametrize("usage", [CHAT, RESPONSES])
def test_usage_of_whole_streamed_and_parsed_answers(usage: dict[str, Any]) -> None:
    whole = {"usage": usage}
    assert usage_of_body("application/json", json.dumps(whole).encode()) == COUNTED
    events = f"data: {{}}\n\ndata: {json.dumps(whole)}\n\ndata: [DONE]\n\n".encode()
    assert usage_of_body("text/event-stream; charset=utf-8", events) == COUNTED
    assert usage_of_answer(whole) == COUNTED
    assert usage_of_answer(objects(whole)) == COUNTED


@pytest.mark.parametrize("answer", [{}, {"usage": None}, {"usage": {}}, {"usage": {"prompt_tokens": "?"}}])
def test_an_answer_that_counts_nothing(answer: dict[str, Any]) -> None:
    assert usage_of_answer(answer) == Usage()
    assert usage_of_body("application/json", json.dumps(answer).encode()) == Usage()
    assert usage_of_body("application/json", b'no json with a "usage"') == Usage()


def test_counts_that_cannot_be_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with Gate(sample_concurrency=1) as gate, gate.sample("task-1") as sample, sample.inference() as turn:
        record_usage(turn, Usage(prompt_tokens=9))
        assert caplog.records == []
        with caplog.at_level(logging.WARNING):
            record_usage(turn, Usage(prompt_tokens=9, cached_tokens=10, output_tokens=1))
    assert "task-1 is not recorded: cached_tokens must be at most prompt_tokens" in caplog.text
