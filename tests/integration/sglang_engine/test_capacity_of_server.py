"""What a booted server says of its pools over HTTP, in its log, and to our commands."""

import json
from typing import Any

import pytest
from integration.sglang_engine.servers import RUNNING_REQUESTS, EngineServer
from unit.capacity.model_configs import CONFIGS, write_config

from coresched.capacity.footprint import footprint
from coresched.capacity.observed import observe_engine, observe_log
from coresched.cli.main import main

pytestmark = [pytest.mark.sglang, pytest.mark.by_hand]


def test_the_endpoint_and_the_log_say_the_same(routing_prefix_server: EngineServer) -> None:
    endpoint, log = observe_engine(routing_prefix_server.url), observe_log(routing_prefix_server.log)
    for name in ("state_slots", "kv_tokens", "max_running_requests", "page_size"):
        assert getattr(endpoint, name) == getattr(log, name), name
    assert (endpoint.state_slots, endpoint.kv_tokens) == (180, 30_000)
    assert endpoint.max_running_requests == RUNNING_REQUESTS


@pytest.fixture
def model(tmp_path: Any) -> str:
    return str(write_config(tmp_path, CONFIGS["Ling-3.0-tiny"]))


def test_the_doctor_finds_nothing_off(
    routing_prefix_server: EngineServer, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--model", model, "--concurrency", str(RUNNING_REQUESTS), "--timeout-s", "60", "--json"]
    assert main(["doctor", "--engine", routing_prefix_server.url, *asked]) == 0
    told = json.loads(capsys.readouterr().out)
    statuses = {finding["topic"]: finding["status"] for finding in told["findings"]}
    assert statuses["pools"] == statuses["concurrency"] == "ok"
    assert told["version"] == "0.5.23"


def test_a_plan_has_the_memory_of_the_servers_pools(
    routing_prefix_server: EngineServer, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = ("--turns", "4", "--prompt", "300", "--output", "16", "--response", "60", "--samples", "20")
    assert main(["plan", model, "--from-engine", routing_prefix_server.url, *workload, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    size = footprint(model, "sglang")
    assert planned["pool_bytes"] == 30_000 * size.kv_bytes + 181 * size.state_bytes
    used = (planned["pools"]["state_slots"] + 1) * size.state_bytes
    assert planned["pools"]["kv_tokens"] == (planned["pool_bytes"] - used) // size.kv_bytes
