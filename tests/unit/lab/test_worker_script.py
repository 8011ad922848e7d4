"""Scripts of the live worker: what a file may hold, which reply a conversation gets, and its tokens."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.errors import InputError
from coresched.lab.worker.answers import GenerateAnswer, OpenAiAnswer
from coresched.lab.worker.asked import Asked, Endpoints
from coresched.lab.worker.calls import ToolCall, compact_json, rendered_call
from coresched.lab.worker.fields import read_body
from coresched.lab.worker.refusal import RefusedError
from coresched.lab.worker.script import Script, ScriptedReply, ScriptLine, load_script
from coresched.lab.worker.tokens import decode, encode

BASH = {"name": "bash", "arguments": {"command": "ls -l"}}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(
    lambda name, arguments: {"name": name, "arguments": arguments},
    st.text(min_size=1, max_size=12),
    st.dictionaries(st.text(), values, max_size=3),
)
replies = st.one_of(
    st.builds(lambda text: {"content": text}, st.text(min_size=1)),
    st.builds(
        lambda text, given: {"content": text, "tool_calls": given},
        st.text() | st.none(),
        st.lists(calls, min_size=1, max_size=3),
    ),
)


def script(tmp_path: Path, *lines: Any) -> Script:
    path = tmp_path / "script.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return load_script(path)


def endpoints(script: Script) -> Endpoints:
    return Endpoints("m", largest_request=20_000, script=script)


def chat(endpoints: Endpoints, messages: list[dict[str, Any]], **fields: Any) -> Asked:
    return endpoints.chat(read_body(json.dumps({"messages": messages, **fields}).encode()), None)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(asked: Asked) -> str | None:
    return None if asked.scripted is None else asked.scripted.content


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", ": broken JSON: Input data was truncated; every line must be one whole JSON object"),
        ("[1]", ": the line must be a JSON object with match and replies, got [1]"),
        (
            {"replies": [{"content": "a"}]},
            ": match must be a string: text of the first user message, but it is m",
        ),
        ({"match": 1, "replies": [{"content": "a"}]}, ": match must be a string, got 1"),
        ({"match": ""}, ": replies must be a list of at least one reply, but it is missing"),
        ({"match": "", "replies": []}, ": replies must be a list of at least one reply, got []"),
        ({"match": "", "replies": ["a"]}, ": replies[0] must be a JSON object, got 'a'"),
        ({"match": "", "reply": "a"}, ": reply is no field here; use match and replies"),
        (
            {"match": "", "replies": [{"content": "a"}, {"text": "a"}]},
            ": replies[1].text is no field here; use content and tool_calls",
        ),
        (
            {"match": "", "replies": [{}]},
            ": replies[0].content must be text with something in it where the r",
        ),
        (
            {"match": "", "replies": [{"content": ""}]},
            ": replies[0].content must be text with something in i",
        ),
        (
            {"match": "", "replies": [{"content": "a", "tool_calls": []}]},
            ": replies[0].tool_calls must be a list of at least one call; leave it out where there is none",
        ),
        (
            {"match": "", "replies": [{"tool_calls": [BASH, {"arguments": {}}]}]},
            ": replies[0].tool_calls[1].name must be the name of a tool, but it is missing",
        ),
        (
            {"match": "", "replies": [{"tool_calls": [{"name": "bash", "arguments": '{"command": "ls"}'}]}]},
            ": replies[0].tool_calls[0].arguments must be a JSON object, {} where the tool takes none, got",
        ),
        (
            {"match": "", "replies": [{"tool_calls": [BASH | {"id": "c1"}]}]},
            ": replies[0].tool_calls[0].id is no field here; use name and arguments",
        ),
    ],
)
def test_a_mistake_names_file_line_and_field(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        script(tmp_path, {"match": "a", "replies": [{"content": "b"}]}, "", line)
    said = str(refused.value)
    assert said.startswith(f"{tmp_path / 'script.jsonl'}, line 3{message}")
    assert "\n" not in said


def test_a_file_without_lines_is_no_script(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"script\.jsonl holds no replies"):
        script(tmp_path, "")
    with pytest.raises(InputError, match="no such file"):
        load_script(tmp_path / "nowhere")


def test_the_first_matching_line_gives_a_reply_a_turn_and_then_the_last_again(tmp_path: Path) -> None:
    served = endpoints(
        script(
            tmp_path,
            {"match": "task 1", "replies": [{"content": "first"}, {"content": "second"}]},
            {"match": "task", "replies": [{"content": "other"}]},
        )
    )
    task = [{"role": "system", "content": "you do every task"}, user("do task 1"), user("not task 2")]
    assert said(chat(served, task)) == "first"
    turn = [{"role": "assistant", "content": "anything"}, {"role": "tool", "content": "result"}]
    assert said(chat(served, task + turn)) == "second"
    assert said(chat(served, task + turn + turn)) == "second"
    assert said(chat(served, [user("task 2")])) == "other"
    assert (
        said(chat(served, [user([{"type": "text", "text": "ta"}, {"type": "text", "text": "sk"}])]))
        == "other"
    )
    # Words, for the user's first message counts, and only without one the whole prompt.
    assert said(chat(served, [{"role": "system", "content": "task 1"}, user("hello")])) is None
    assert (
        said(chat(served, [{"role": "system", "content": "a"}, {"role": "tool", "content": "task"}]))
        == "other"
    )


def test_a_text_prompt_gets_the_first_reply_if_that_is_text(tmp_path: Path) -> None:
    served = endpoints(
        script(
            tmp_path,
            {"match": "say", "replies": [{"content": "a word"}, {"content": "another"}]},
            {"match": "do", "replies": [{"content": "well", "tool_calls": [BASH]}]},
        )
    )
    for asked in (
        served.completion(read_body(b'{"prompt": "say it"}'), None),
        served.generate(read_body(b'{"text": "say it", "sampling_params": {"max_new_tokens": 9}}'), None),
    ):
        assert decode(asked.request.reply) == "a word"
        assert not asked.counted
    assert OpenAiAnswer(asked, "m", "text").whole()["choices"][0]["finish_reason"] == "stop"
    assert served.completion(read_body(b'{"prompt": [1, 2]}'), None).scripted is None
    with pytest.raises(RefusedError) as refused:
        served.completion(read_body(b'{"prompt": "do it"}'), None)
    assert str(refused.value) == (
        "prompt gets the scripted reply (line 2 of the script, replies[0]), which has tool calls; "
        "ask for it at /v1/chat/completions"
    )


def test_a_reply_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    served = endpoints(script(tmp_path, {"match": "", "replies": [{"tool_calls": [BASH]}]}))
    needed = len(encode('\n{"name":"bash","arguments": {"command":"ls -l"}\n}'))
    assert len(chat(served, [user("x")], max_tokens=needed).request.reply) == needed
    with pytest.raises(RefusedError) as refused:
        chat(served, [user("x")], max_completion_tokens=needed - 1)
    assert refused.value.field == "max_completion_tokens"
    assert str(refused.value) == (
        f"max_completion_tokens is {needed - 1}, but the scripted reply (line 1 of the script, replies[0]) "
        f"has {needed} tokens, and half a reply is none; give at least {needed}, or no max_completion_tokens"
    )
    with pytest.raises(
        RefusedError, match=r"with the scripted reply \(.*\) of \d+ it needs more than the 9 tok"
    ):
        chat(Endpoints("m", largest_request=9, script=served.script), [user("x")])


def one_reply(reply: dict[str, Any]) -> Endpoints:
    made = tuple(
        ToolCall(call["name"], compact_json(call["arguments"])) for call in reply.get("tool_calls", [])
    )
    return endpoints(Script((ScriptLine("", (ScriptedReply(reply.get("content") or "", made, 1, 0),)),)))


@given(replies, st.data())
def test_a_stream_adds_up_to_the_whole_message_wherever_it_is_cut(
    reply: dict[str, Any], data: st.DataObject
) -> None:
    asked = chat(one_reply(reply), [user("x")])
    answer = OpenAiAnswer(asked, "m", "chat")
    (whole,) = answer.whole()["choices"]
    length = len(asked.request.reply)
    cuts = sorted(data.draw(st.sets(st.integers(1, length))) | {0, length})
    chunks = [chunk for sent, end in pairwise(cuts) for chunk in answer.chunk(sent, end)]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [place for place, delta in enumerate(deltas) if "role" in delta] == [0]
    assert "".join(delta.get("content") or "" for delta in deltas) == (whole["message"]["content"] or "")
    streamed: list[dict[str, Any]] = []
    for delta in deltas:
        for call in delta.get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(streamed)
                streamed.append({name: value for name, value in call.items() if name != "index"})
            else:
                assert call["index"] == len(streamed) - 1
                streamed[-1]["function"]["arguments"] += call["function"]["arguments"]
    assert streamed == whole["message"].get("tool_calls", [])
    assert whole["finish_reason"] == ("tool_calls" if streamed else "stop")
    (last,) = answer.closing()
    assert last["choices"][0]["finish_reason"] == whole["finish_reason"]
    for call, scripted in zip(streamed, reply.get("tool_calls", []), strict=True):
        assert call["function"]["name"] == scripted["name"]
        assert json.loads(call["function"]["arguments"]) == scripted["arguments"]


@given(replies, st.sampled_from([None, 1]))
def test_a_reply_sent_back_is_what_the_cache_holds(reply: dict[str, Any], indent: int | None) -> None:
    served = one_reply(reply)
    first = chat(served, [user("x")])
    (choice,) = OpenAiAnswer(first, "m", "chat").whole()["choices"]
    message = json.loads(json.dumps(choice["message"]))
    for call in message.get("tool_calls", []):  # as of a client that read the arguments, and named the call
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=indent)
        call["id"] = "x" + call["id"]
    again = chat(served, [user("x"), message, {"role": "tool", "content": "result"}])
    held = first.request.prompt + first.request.reply
    assert again.request.prompt[: len(held)] == held
    ids = [
        call["id"]
        for asked in (first, again)
        for call in OpenAiAnswer(asked, "m", "chat").whole()["choices"][0]["message"].get("tool_calls", [])
    ]
    assert len(set(ids)) == len(ids)


@given(st.text(min_size=1), st.data())
def test_a_text_completion_and_generate_stream_whole_characters(text: str, data: st.DataObject) -> None:
    asked = one_reply({"content": text}).completion(read_body(b'{"prompt": "x"}'), None)
    length = len(asked.request.reply)
    cuts = sorted(data.draw(st.sets(st.integers(1, length))) | {0, length})
    answer = OpenAiAnswer(asked, "m", "text")
    spans = list(pairwise(cuts))
    chunks = [chunk["choices"][0]["text"] for sent, end in spans for chunk in answer.chunk(sent, end)]
    assert "".join(chunks) == text
    for sent, end in spans:
        (so_far,) = GenerateAnswer(asked).chunk(sent, end)
        assert text.startswith(so_far["text"])
    assert so_far["text"] == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            {"function": {"name": "f", "arguments": '{"a": [1, 2]}'}},
            '\n{"name":"f","arguments": {"a":[1,2]}\n}',
        ),
        ({"function": {"name": "f", "arguments": {"a": 1}}}, '\n{"name":"f","arguments": {"a":1}\n}'),
        ({"function": {"name": "f", "arguments": "{ broken"}}, '\n{"name":"f","arguments": { broken\n}'),
        ({"custom": {"name": "f"}}, '\n{"custom":{"name":"f"}}'),
        ("f", '\n"f"'),
    ],
)
def test_calls_of_a_client_are_rendered_whatever_they_are(call: Any, text: str) -> None:
    assert rendered_call(call) == text
