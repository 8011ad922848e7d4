"""The simulated worker as clients meet it: a process, and the unmodified client of OpenAI's API."""

import re
import shlex
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from openai import NotFoundError, OpenAI
from openai.types.chat import ChatCompletion
from simulated import small_model
from simulated_worker import CHECKOUT, metrics, running_worker

from coresched.cli.main import main
from coresched.lab.simulator.model import load_worker_model
from coresched.lab.worker.tokens import decode

FAST = ("--speed", "2000", "--served-model-name", "m")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_worker(*FAST, "--schedule-policy", "routing-prefix") as (url, _):
        yield url


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def header(label: str) -> dict[str, str]:
    return {"x-smg-routing-key": label}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def chat(client: OpenAI, messages: list[Any], label: str, **fields: Any) -> ChatCompletion:
    return client.chat.completions.create(model="m", messages=messages, extra_headers=header(label), **fields)


def cached(answer: Any) -> int:
    return answer.usage.prompt_tokens_details.cached_tokens


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_second_turn_finds_the_first_prompt_and_reply(client: OpenAI) -> None:
    messages = [user("the quick brown fox " * 30)]
    first = chat(client, messages, "a", max_tokens=25)
    assert (cached(first), first.usage.completion_tokens) == (0, 25)
    assert first.choices[0].finish_reason == "length"
    reply = first.choices[0].message.content
    messages += [{"role": "assistant", "content": reply}, user("go on")]
    second = chat(client, messages, "a")
    assert cached(second) == first.usage.prompt_tokens + 25
    assert second.choices[0].finish_reason == "stop"
    assert 32 <= second.usage.completion_tokens <= 287
    # Another trajectory with the same prompt has no entry; a rewritten reply leaves the prompt before it.
    assert cached(chat(client, messages, "b", max_tokens=1)) == 0
    rewritten = [*messages, {"role": "assistant", "content": "no"}, user("and?")]
    assert cached(chat(client, rewritten, "a", max_tokens=1)) == second.usage.prompt_tokens
    assert cached(chat(client, [user("something else")], "a", max_tokens=1)) == 0


def test_a_request_without_a_label_finds_the_longest_prefix(client: OpenAI) -> None:
    prompt = "no label here: " * 20
    first = client.completions.create(model="m", prompt=prompt, max_tokens=10)
    client.completions.create(model="m", prompt=prompt + "other", max_tokens=10, extra_headers=header("c"))
    second = client.completions.create(
        model="m", prompt=prompt + first.choices[0].text + " more", max_tokens=10
    )
    assert first.usage is not None
    assert cached(second) == first.usage.total_tokens


def test_a_stream_has_the_same_text_and_usage(client: OpenAI) -> None:
    messages = [user("stream this")]
    whole = chat(client, messages, "s", max_tokens=200)
    chunks = list(
        chat(client, messages, "s", max_tokens=200, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:-1]] == ["length"]
    assert chunks[-1].usage.completion_tokens == 200
    assert cached(chunks[-1]) == whole.usage.prompt_tokens - 1  # the same prompt again: one token is computed
    parts = list(client.completions.create(model="m", prompt="stream this", max_tokens=200, stream=True))
    assert len("".join(part.choices[0].text for part in parts)) == 4 * 200
    assert parts[-1].choices[0].finish_reason == "length"


def test_tokens_come_as_the_steps_pass() -> None:
    with running_worker("--speed", "4") as (url, _):
        body = {"text": "slowly", "sampling_params": {"max_new_tokens": 40}, "stream": True}
        with httpx.stream("POST", f"{url}/generate", json=body) as response:
            lines = [line for line in response.iter_lines() if line]
    assert lines.pop() == "data: [DONE]"
    metas = [msgspec.json.decode(line.removeprefix("data: "))["meta_info"] for line in lines]
    counts = [meta["completion_tokens"] for meta in metas]
    # Steps of 4 ms of wall-clock time are sent at most every 5 ms; a busy machine sends them in fewer chunks.
    assert counts == sorted(set(counts))
    assert counts[0] == 1
    assert len(counts) > 3
    assert metas[-1]["finish_reason"] == {"type": "length", "length": 40}


def test_generate_answers_as_sglang_does(url: str) -> None:
    body = {"input_ids": [7, 8, 9], "sampling_params": {"max_new_tokens": 5, "ignore_eos": True}}
    first = httpx.post(f"{url}/generate", json=body, headers=header("g")).json()
    assert (first["meta_info"]["prompt_tokens"], first["meta_info"]["completion_tokens"]) == (3, 5)
    body["input_ids"] = [7, 8, 9, *first["output_ids"], 10]
    again = httpx.post(f"{url}/generate", json=body, headers=header("g")).json()
    assert again["meta_info"]["cached_tokens"] == 8


def test_a_completion_has_the_ids_of_its_reply_where_they_are_asked_for(url: str) -> None:
    body = {"prompt": [7, 8, 9], "max_tokens": 5, "return_token_ids": True}
    (choice,) = httpx.post(f"{url}/v1/completions", json=body, headers=header("i")).json()["choices"]
    assert decode(choice["token_ids"]) == choice["text"]
    body |= {"prompt": [7, 8, 9, *choice["token_ids"], 10], "return_token_ids": False}
    again = httpx.post(f"{url}/v1/completions", json=body, headers=header("i")).json()
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 8
    assert "token_ids" not in again["choices"][0]


def test_durations_follow_the_step_model(url: str) -> None:
    times = load_worker_model().times
    prompt, output = 500, 60
    body = {"model": "m", "prompt": list(range(prompt)), "max_tokens": output}
    answer = httpx.post(f"{url}/v1/completions", json=body, headers=header("alone"))
    first_token = (
        times.prefill_batch_s
        + times.prefill_request_s
        + times.prefill_token_s * prompt
        + times.prefill_attended_token_s * prompt * prompt / 2
        + times.queue_entry_s
    )
    steps = sum(
        times.decode_step_s + times.decode_sequence_s + times.decode_context_token_s * (prompt + 1 + step)
        for step in range(output - 1)
    )
    assert float(answer.headers["x-coresched-first-token-s"]) == pytest.approx(first_token, rel=1e-6)
    assert float(answer.headers["x-coresched-duration-s"]) == pytest.approx(first_token + steps, rel=1e-6)


def test_under_pressure_entries_are_evicted_and_reuse_falls(tmp_path: Path) -> None:
    model = tmp_path / "small.json"
    model.write_bytes(msgspec.json.encode(small_model()))  # 6000 KV tokens
    with running_worker(*FAST, "--model", str(model), "--state-ratio", "1") as (url, _):

        def turn(label: str, tokens: int) -> int:
            body = {"prompt": list(range(tokens)), "max_tokens": 1}
            answer = httpx.post(f"{url}/v1/completions", json=body, headers=header(label)).json()
            return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

        assert (turn("a", 2000), turn("b", 2000), turn("a", 2100)) == (0, 0, 2000)
        assert metrics(url)["evictions_total"] == 0
        assert turn("c", 2500) == 0
        assert metrics(url)["evictions_total"] == 1
        assert (turn("b", 2100), turn("c", 2600)) == (0, 2500)
        assert metrics(url)["kv_pool_use"] <= 1
        body = {"prompt": list(range(5999)), "max_tokens": 1}
        refused = httpx.post(f"{url}/v1/completions", json=body)
        assert refused.status_code == 400
        assert "more than the 5999 tokens that the KV pool holds" in refused.json()["error"]["message"]


def test_a_client_that_leaves_frees_what_it_held() -> None:
    with running_worker("--speed", "1") as (url, _):
        body = {"prompt": "x " * 500, "max_tokens": 100_000}
        with httpx.stream("POST", f"{url}/v1/completions", json=body | {"stream": True}) as response:
            lines = response.iter_lines()  # closes the response when it is collected
            assert next(lines).startswith("data: ")
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{url}/v1/completions", json=body, timeout=0.3)
            assert metrics(url)["kv_pool_running"] > 0.02
        eventually(lambda: metrics(url)["running_requests"] == 0)
        now = metrics(url)
        assert (now["kv_pool_running"], now["waiting_requests"]) == (0, 0)
        assert (now["aborted_requests_total"], now["requests_total"]) == (2, 0)
        assert now["cached_entries"] >= 1


def test_a_signal_lets_open_requests_end() -> None:
    with running_worker("--speed", "10", "--grace-s", "60") as (url, process):
        body = {"prompt": "x", "max_tokens": 300, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            process.send_signal(signal.SIGTERM)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert process.wait(20) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")


def wait_until_refused(url: str) -> None:
    address = httpx.URL(url)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            socket.create_connection((address.host, address.port or 80), timeout=5).close()
        except ConnectionRefusedError:
            return
    raise TimeoutError(f"{url} still accepts connections")


def test_a_second_signal_ends_open_requests() -> None:
    with running_worker("--grace-s", "600") as (url, process):
        body = {"prompt": "x", "max_tokens": 100_000, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            process.terminate()
            wait_until_refused(url)  # two signals at once would arrive as one
            process.terminate()
            assert process.wait(20) == 0


def test_errors_are_json(url: str, client: OpenAI) -> None:
    assert client.models.list().data[0].id == "m"
    assert httpx.get(f"{url}/health").status_code == 200
    with pytest.raises(NotFoundError, match="model is 'x', which is not served here; use 'm'"):
        client.completions.create(model="x", prompt="a")
    chat = f"{url}/v1/chat/completions"
    for response, status, said in (
        (httpx.post(chat, content=b"{"), 400, "the body must be JSON"),
        (httpx.post(chat, json={"messages": [user("a")], "max_tokens": 0}), 400, "max_tokens must be"),
        (
            httpx.post(chat, json={"messages": [user("a")]}, headers=header("k" * 513)),
            400,
            "x-smg-routing-key",
        ),
        (httpx.post(chat, content=b" " * (32 * 1024 * 1024 + 1)), 413, "at most 33554432 bytes"),
        (httpx.get(chat), 405, "Method Not Allowed"),
        (httpx.get(f"{url}/nowhere"), 404, "Not Found"),
    ):
        assert response.status_code == status
        error = response.json()["error"]
        assert said in error["message"]
        assert error["type"] == "invalid_request_error"


def test_the_page_of_the_worker_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    page = (CHECKOUT / "docs" / "worker.md").read_text()
    (console,) = re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    command, printed = console.splitlines()
    program, verb, listen, address, *options = shlex.split(command.removeprefix("$ "))
    assert (program, verb, listen) == ("coresched", "worker", "--listen")
    assert printed == f"coresched worker: listening on {address}"
    with running_worker(*options) as (url, _):
        exec(example.replace(f"http://{address}", url), {})
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(" 0")
    assert int(second.split()[1]) == int(first.split()[0]) + 20


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "nowhere"], "--listen must be HOST:PORT"),
        (["--model", "nothing"], "worker model 'nothing' is neither a readable file"),
        (["--state-ratio", "1e-9"], "state slots on worker model"),
        (["--speed", "0"], "must be greater than 0"),
        (["--schedule-policy", "lifo"], "invalid choice"),
        (["--label-capacity", "0"], "must be at least 1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["worker", *options])
    except SystemExit as exit:
        code = exit.code
    assert code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_what_is_no_request_is_answered_in_json_and_without_a_traceback() -> None:
    with running_worker(*FAST) as (url, process):
        packed = httpx.post(f"{url}/generate", content=b"{}", headers={"Content-Encoding": "gzip"})
        assert packed.status_code == 415
        assert "send the body as it is" in packed.json()["error"]["message"]
        long = httpx.get(f"{url}/health", headers={"x": "a" * 9000})
        assert long.status_code == 400
        assert long.json()["error"]["type"] == "invalid_request_error"
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"no HTTP\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.0 400 ")
        process.send_signal(signal.SIGHUP)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")


def test_a_socket_is_taken_away_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with running_worker(*FAST, "--listen", f"unix:{path}") as (_, process):
        assert path.is_socket()
        process.terminate()
        process.communicate(timeout=20)
    assert not path.exists()
