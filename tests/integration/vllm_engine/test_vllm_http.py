"""`vllm serve` with the adapter: labels by each HTTP carrier, and what /metrics says of them."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from integration.vllm_engine.servers import SMALL, serving, write_model

pytestmark = pytest.mark.vllm

FLAGS = (
    *(*SMALL, "--enable-prefix-caching", "--enable-prompt-tokens-details"),
    *("--scheduler-cls", "coresched_vllm.RoutingPrefix"),
    *("--additional-config", '{"coresched": {"label_capacity": 64}}'),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(write_model(tmp_path_factory.mktemp("vllm") / "model"), FLAGS) as running:
        yield running.url


def admitted(server: str) -> dict[str, float]:
    """By what was found of their label."""
    prefix = "coresched_prefix_admitted_total{"
    lines = httpx.get(f"{server}/metrics", timeout=60).text.splitlines()
    found = {}
    for line in lines:
        if line.startswith(prefix):
            assert 'engine="0"' in line
            assert 'model_name="tiny"' in line
            found[line.split('label="')[1].split('"')[0]] = float(line.rsplit(" ", 1)[1])
    return found


HEADER = {"extra_headers": {"X-Session-ID": "header"}}
CARRIERS: dict[str, dict[str, Any]] = {
    "header": HEADER,
    "body": {"extra_body": {"session_id": "body"}},
    "body over header": {**HEADER, "extra_body": {"session_id": "body-over-header"}},
    "trajectory": {"extra_body": {"vllm_xargs": {"trajectory": "argument"}}},
    "session_id argument": {"extra_body": {"vllm_xargs": {"session_id": "session-argument"}}},
}


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_label_arrives_by_each_carrier(server: str, carrier: str, chat: bool) -> None:
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="none", timeout=300)
    arguments = ending_in("-chat" if chat else "", CARRIERS[carrier])
    before = admitted(server)
    for _ in range(2):
        text = f"{carrier} " * 20
        if chat:
            message: Any = [{"role": "user", "content": text}]
            client.chat.completions.create(model="tiny", messages=message, max_tokens=2, **arguments)
        else:
            client.completions.create(model="tiny", prompt=text, max_tokens=2, **arguments)
    after = admitted(server)
    assert {name: after[name] - before[name] for name in after} == {"miss": 1, "hit": 1, "none": 0}


def ending_in(suffix: str, value: Any) -> Any:
    """The same with other labels, which are all that is no dict."""
    if isinstance(value, dict):
        return {key: ending_in(suffix, each) for key, each in value.items()}
    return value + suffix


def test_another_header_and_none_at_all_are_no_label(server: str) -> None:
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="none", timeout=300)
    before = admitted(server)["none"]
    for headers in ({}, {"x-smg-routing-key": "t"}):
        client.completions.create(model="tiny", prompt="plain", max_tokens=2, extra_headers=headers)
    assert admitted(server)["none"] == before + 2
