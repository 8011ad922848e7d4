"""A worker with a script and a request log, and the unmodified client of OpenAI's API in a tool loop."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from simulated_worker import CHECKOUT, metrics, running_worker

from coresched.cli.main import main
from coresched.lab.worker.script import load_script

LOOK = {"name": "bash", "arguments": {"command": "ls -l 'ümlaut'", "timeout_s": 2.5}}
READ = {"name": "read", "arguments": {"path": "a.txt"}}
SCRIPT = [
    {
        "match": "fix the bug",
        "replies": [
            {"content": "I look first: 📁", "tool_calls": [LOOK, READ]},
            {"tool_calls": [{"name": "submit", "arguments": {}}]},
            {"content": "It is fixed."},
        ],
    },
    {"match": "say", "replies": [{"content": "as you like"}]},
]
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "requests.jsonl"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Iterator[str]:
    script = tmp_path_factory.mktemp("script") / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in SCRIPT))
    options = (
        "--speed",
        "500",
        "--served-model-name",
        "m",
        "--script",
        str(script),
        "--request-log",
        str(log),
    )
    with running_worker(*options) as (url, _):
        yield url


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def whole(client: OpenAI, messages: list[Any], label: str) -> ChatCompletion:
    return client.chat.completions.create(
        model="m", messages=messages, tools=TOOLS, extra_headers={"x-smg-routing-key": label}
    )


def streamed(client: OpenAI, messages: list[Any], label: str) -> ChatCompletion:
    """What the client's own accumulator makes of the chunks."""
    state = ChatCompletionStreamState()
    for chunk in client.chat.completions.create(
        model="m",
        messages=messages,
        tools=TOOLS,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"x-smg-routing-key": label},
    ):
        state.handle_chunk(chunk)
    return state.get_final_completion()


def as_object(message: ChatCompletionMessage) -> Any:
    return message


def as_read_and_written(message: ChatCompletionMessage) -> Any:
    """Of a harness with types of its own: other spaces, other ids, another order of the fields."""
    calls = [
        {
            "type": "function",
            "id": f"mine-{place}",
            "function": {
                "arguments": json.dumps(json.loads(call.function.arguments), indent=2),
                "name": call.function.name,
            },
        }
        for place, call in enumerate(message.tool_calls or [])
    ]
    return {"tool_calls": calls, "role": "assistant", "content": message.content}


@pytest.mark.parametrize("back", [as_object, as_read_and_written])
@pytest.mark.parametrize("ask", [whole, streamed])
def test_a_tool_loop_gets_its_calls_and_each_turn_finds_the_last_one(
    client: OpenAI, ask: Any, back: Any
) -> None:
    label = f"{ask.__name__}-{back.__name__}"
    messages: list[Any] = [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "fix the bug"},
    ]
    answers, ids = [], []
    for _ in range(4):
        answer = ask(client, messages, label)
        answers.append(answer)
        message = answer.choices[0].message
        calls = message.tool_calls or []
        ids += [call.id for call in calls]
        messages.append(back(message))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in calls]
    first, second, third, fourth = (answer.choices[0] for answer in answers)
    assert first.message.content == "I look first: 📁"
    assert [
        {"name": call.function.name, "arguments": json.loads(call.function.arguments)}
        for call in first.message.tool_calls or []
    ] == [LOOK, READ]
    assert second.message.content is None
    assert [call.function.name for call in second.message.tool_calls or []] == ["submit"]
    assert third.message.tool_calls is None
    assert (third.message.content, fourth.message.content) == ("It is fixed.", "It is fixed.")
    assert [answer.choices[0].finish_reason for answer in answers] == [
        "tool_calls",
        "tool_calls",
        "stop",
        "stop",
    ]
    assert len(set(ids)) == 3
    usages = [answer.usage for answer in answers]
    assert [usage.prompt_tokens_details.cached_tokens for usage in usages] == [
        0,
        *(usage.total_tokens for usage in usages[:-1]),
    ]


def test_text_completions_are_scripted_and_other_prompts_get_words(client: OpenAI, url: str) -> None:
    text = client.completions.create(model="m", prompt="please say something").choices[0]
    assert (text.text, text.finish_reason) == ("as you like", "stop")
    generated = httpx.post(f"{url}/generate", json={"text": "say"}).json()
    assert generated["text"] == "as you like"
    assert generated["meta_info"]["finish_reason"] == {"type": "stop"}
    words = whole(client, [{"role": "user", "content": "hello"}], "words")
    assert len(words.choices[0].message.content or "") > 100
    with pytest.raises(BadRequestError, match=r"max_tokens is 5, but the scripted reply .* has \d+ tokens"):
        client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "fix the bug"}], max_tokens=5
        )


def test_the_request_log_tells_whose_request_came_and_what_the_cache_spared(
    client: OpenAI, log: Path, url: str
) -> None:
    before = len(log.read_text().splitlines())
    messages: list[Any] = [{"role": "user", "content": "fix the bug"}]
    first = streamed(client, messages, "a")
    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": "x", "content": "done"}]
    second = whole(client, messages, "a")
    client.completions.create(model="m", prompt="hello", max_tokens=3)
    httpx.post(f"{url}/v1/chat/completions", json={}, headers={"x-smg-routing-key": "b"})
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{url}/generate",
            json={"text": "hello", "sampling_params": {"max_new_tokens": 90_000}},
            timeout=0.3,
        )
    deadline = time.monotonic() + 30
    while metrics(url)["running_requests"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    entries = [json.loads(line) for line in log.read_text().splitlines()[before:]]
    assert all(1.7e9 < entry.pop("time") < 1e11 for entry in entries)
    assert first.usage is not None
    assert second.usage is not None
    chat = {"path": "/v1/chat/completions", "label": "a", "outcome": "answered", "script_line": 1}
    *answered, refused, aborted = entries
    assert answered == [
        chat
        | {
            "streamed": True,
            "prompt_tokens": first.usage.prompt_tokens,
            "cached_tokens": 0,
            "output_tokens": first.usage.completion_tokens,
        },
        chat
        | {
            "streamed": False,
            "prompt_tokens": second.usage.prompt_tokens,
            "cached_tokens": first.usage.total_tokens,
            "output_tokens": second.usage.completion_tokens,
        },
        {
            "path": "/v1/completions",
            "label": None,
            "outcome": "answered",
            "script_line": None,
            "streamed": False,
            "prompt_tokens": 2,
            "cached_tokens": 0,
            "output_tokens": 3,
        },
    ]
    assert refused == {"path": "/v1/chat/completions", "label": "b", "outcome": "refused"}
    assert (aborted["path"], aborted["outcome"]) == ("/generate", "aborted")


def test_the_script_on_the_workers_page_is_one(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs" / "worker.md").read_text()
    (example,) = re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    script = tmp_path / "script.jsonl"
    script.write_text(example)
    loaded = load_script(script)
    first = loaded.reply("Fix issue 12, please", 0)
    assert first is not None
    assert [call.name for call in first.calls] == ["bash"]
    assert loaded.reply("anything", 7) is not None


def test_a_mistake_in_a_file_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"match": "a", "replies": [{"content": "b", "tools": []}]}\n')
    good = tmp_path / "good.jsonl"
    good.write_text('{"match": "a", "replies": [{"content": "b"}]}\n')
    for options, said in (
        (
            ["--script", str(good), "--request-log", str(good)],
            f"--request-log {str(good)!r} is the --script; choose another name",
        ),
        (["--script", str(script)], f"{script}, line 1: replies[0].tools is no field here; use content and "),
        (["--script", str(tmp_path / "none")], f"{tmp_path / 'none'}: no such file"),
        (
            ["--request-log", str(tmp_path)],
            f"--request-log {str(tmp_path)!r} cannot be written: Is a directory",
        ),
    ):
        assert main(["worker", "--listen", "127.0.0.1:0", *options]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert said in err
