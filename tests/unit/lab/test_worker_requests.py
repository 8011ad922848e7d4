"""What the live worker takes, and the sentence it refuses everything else with."""

import json
from typing import Any

import pytest

from coresched.lab.worker.asked import Asked, Endpoints
from coresched.lab.worker.fields import read_body
from coresched.lab.worker.refusal import RefusedError
from coresched.lab.worker.replies import LONGEST, SHORTEST
from coresched.lab.worker.tokens import encode, render_chat

ENDPOINTS = Endpoints("m", largest_request=1000)
HELLO = [{"role": "user", "content": "hello"}]


def asked(endpoint: str, body: Any) -> Asked:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return getattr(ENDPOINTS, endpoint)(read_body(text), "label")


@pytest.mark.parametrize(
    ("endpoint", "body", "message"),
    [
        ("chat", b"{", "the body must be JSON: Input data was truncated"),
        ("chat", b"\xff", "the body must be JSON: "),
        ("chat", [1], "the body must be a JSON object, got [1]"),
        ("chat", {}, "messages must be a list of at least one message, but it is missing"),
        ("chat", {"messages": []}, "messages must be a list of at least one message, got []"),
        ("chat", {"messages": ["hi"]}, "messages[0] must be a JSON object, got 'hi'"),
        (
            "chat",
            {"messages": [{"role": "robot", "content": ""}]},
            "messages[0].role must be one of system, developer, user, assistant, tool, function, got 'robot'",
        ),
        (
            "chat",
            {"messages": [{"role": "user"}]},
            "messages[0].content must be a string or a list of text parts, but it is missing",
        ),
        (
            "chat",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type must be 'text', the only kind of content that this worker takes, "
            "got 'image_url'",
        ),
        (
            "chat",
            {"messages": [{"role": "assistant", "tool_calls": {"id": "c"}}]},
            "messages[0].tool_calls must be a list of calls, got {'id': 'c'}",
        ),
        ("chat", {"messages": HELLO, "max_tokens": 0}, "max_tokens must be an integer of at least 1, got 0"),
        (
            "chat",
            {"messages": HELLO, "max_completion_tokens": True, "max_tokens": 3},
            "max_completion_tokens must be an integer of at least 1, got True",
        ),
        ("chat", {"messages": HELLO, "stream": 1}, "stream must be true or false, got 1"),
        ("chat", {"messages": HELLO, "n": 2}, "n must be 1, as this worker gives one answer"),
        ("chat", {"messages": HELLO, "model": "x"}, "model is 'x', which is not served here; use 'm'"),
        (
            "chat",
            {"messages": HELLO, "stream_options": []},
            "stream_options must be a JSON object, got []",
        ),
        ("chat", {"messages": HELLO, "max_tokens": 996}, "messages has 5 tokens, and with max_tokens 996 "),
        (
            "chat",
            {"messages": [{"role": "user", "content": " x" * 990}]},
            f"messages has 993 tokens, and with a reply of up to {LONGEST} (no max_tokens was given) ",
        ),
        ("completion", {"prompt": ""}, "prompt is empty; it must have a token"),
        ("completion", {"prompt": ["a"]}, "prompt must be a string or a list of token ids, got ['a']"),
        ("completion", {"prompt": [1, -1]}, "prompt[1] must be a token id of at least 0, got -1"),
        ("generate", {}, "text or input_ids must be there, and not both"),
        ("generate", {"text": ["a"]}, "text must be a string, got ['a']"),
        (
            "generate",
            {"text": "a", "sampling_params": {"max_new_tokens": -1}},
            "sampling_params.max_new_tokens must be an integer of at least 1, got -1",
        ),
    ],
)
def test_a_mistake_is_one_sentence(endpoint: str, body: Any, message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        asked(endpoint, body)
    assert refused.value.message.startswith(message)
    assert "\n" not in refused.value.message
    field = refused.value.field
    assert field is None or refused.value.message.startswith(field)


def test_the_length_asked_for_is_the_length_of_the_reply() -> None:
    chat = {"messages": HELLO, "max_tokens": 7}
    assert len(asked("chat", chat).request.reply) == 7
    assert len(asked("chat", chat | {"max_completion_tokens": 9}).request.reply) == 9
    assert len(asked("completion", {"prompt": "x", "max_tokens": 3}).request.reply) == 3
    generated = asked("generate", {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 4}})
    assert (len(generated.request.reply), generated.counted) == (4, True)
    assert len(asked("chat", chat | {"max_tokens": 995}).request.reply) == 995
    free = asked("chat", {"messages": HELLO, "max_tokens": None})
    assert not free.counted
    assert SHORTEST <= len(free.request.reply) <= LONGEST


def test_prompts_are_rendered() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}]
    assert asked("chat", {"messages": parts}).request.prompt == render_chat([("user", "hello")])
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    prompt = asked("chat", {"messages": [*HELLO, call]}).request.prompt
    assert prompt == render_chat([("user", "hello"), ("assistant", '\n{"id":"c"}')])
    assert asked("completion", {"prompt": "a b"}).request.prompt == encode("a b")
    assert list(asked("completion", {"prompt": [3, 9]}).request.prompt) == [3, 9]
