"""Bodies that engines understand, and answers from which the next prompt can be made."""

import json

import pytest

from coresched.lab.replay.failure import EndpointError
from coresched.lab.replay.protocol import Answer, Protocol, openai, sglang


def test_generate_has_the_label_in_its_body() -> None:
    assert json.loads(sglang().body(b"1,2,3", 'a"b', 5)) == {
        "routing_key": 'a"b',
        "input_ids": [1, 2, 3],
        "sampling_params": {"max_new_tokens": 5, "ignore_eos": True, "temperature": 0},
    }


def test_a_completion_asks_for_exactly_so_many_tokens_and_for_their_ids() -> None:
    assert json.loads(openai('m"').body(b"1,2,3", "a", 5)) == {
        "model": 'm"',
        "prompt": [1, 2, 3],
        "max_tokens": 5,
        "min_tokens": 5,
        "ignore_eos": True,
        "temperature": 0,
        "return_token_ids": True,
    }


def test_answers_are_read() -> None:
    meta = {"prompt_tokens": 3, "cached_tokens": 2, "finish_reason": {"type": "length", "length": 2}}
    generated = {"text": "", "output_ids": [8, 9], "meta_info": meta}
    assert sglang().read(json.dumps(generated).encode()) == Answer([8, 9], 3, 2, None)
    meta["first_token_latency"] = 0.5
    assert sglang().read(json.dumps(generated).encode()).first_token_s == 0.5
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
    completion = {"choices": [{"token_ids": [8, 9]}], "usage": usage}
    assert openai("m").read(json.dumps(completion).encode()) == Answer([8, 9], 3, 1, None)
    del usage["prompt_tokens_details"]
    assert openai("m").read(json.dumps(completion).encode()).cached_tokens is None


@pytest.mark.parametrize(
    ("protocol", "content", "message", "may_retry"),
    [
        (sglang(), b"<html>", "no answer of /generate", False),
        (sglang(), b'{"output_ids": [1]}', "no answer of /generate: Object missing required field", False),
        (
            sglang(),
            b'{"output_ids": [], "meta_info": {"prompt_tokens": 1, "finish_reason": '
            b'{"type": "abort", "message": "x"}}}',
            "aborted the request: x",
            True,
        ),
        (openai("m"), b'{"choices": []}', "no answer of /v1/completions", False),
        (
            openai("m"),
            b'{"choices": [{"text": "a"}], "usage": {"prompt_tokens": 1}}',
            "without choices[0].token_ids",
            False,
        ),
    ],
)
def test_what_is_no_answer_is_an_error(
    protocol: Protocol, content: bytes, message: str, may_retry: bool
) -> None:
    with pytest.raises(EndpointError) as refused:
        protocol.read(content)
    assert message in str(refused.value)
    assert refused.value.may_retry == may_retry
