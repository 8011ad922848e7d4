"""Reading an engine's pools: from answers and boot logs as the engines write them, and from anything else."""

import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from engine_reports import (
    GIB,
    VLLM_INFO,
    VLLM_METRICS,
    Route,
    json_answer,
    outcome,
    refusal,
    serving,
    sglang_info,
    vllm_routes,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coresched.capacity.observed import ObservedPools, endpoint, observe_engine
from coresched.capacity.observed.sglang_report import read_server_info
from coresched.capacity.observed.vllm_report import read_metrics

SLOW_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# ---------------------------------------------------------------- SGLang over HTTP


def test_sglang_reports_what_it_made_of_the_ratio() -> None:
    with serving({"/server_info": json_answer(sglang_info())}) as url:
        got = observe_engine(url)
    assert (got.engine, got.version, got.source, got.ranks) == ("sglang", "0.5.23", url, 1)
    assert (got.state_slots, got.kv_tokens, got.max_running_requests, got.page_size) == (
        306,
        8_038_279,
        61,
        1,
    )
    assert got.kv_pool_bytes == round(60.369 * GIB)
    assert got.flags["max_mamba_cache_size"] is None  # what was asked for; K is in internal_states
    assert got.flags["mamba_full_memory_ratio"] == 0.09
    assert "api_key" not in got.flags
    assert set(got.origins) <= set(ObservedPools.__dataclass_fields__)


def test_the_smallest_of_several_ranks_counts() -> None:
    info = sglang_info()
    info["internal_states"].append(sglang_info(slots=300, tokens=8_000_000, running=60)["internal_states"][0])
    got = read_server_info(info, "here")
    assert (got.ranks, got.state_slots, got.kv_tokens, got.max_running_requests) == (2, 300, 8_000_000, 60)
    assert "least of 2" in got.origins["state_slots"]


def test_a_dense_model_has_no_slots() -> None:
    assert read_server_info(sglang_info(slots=None), "here").state_slots is None


@pytest.mark.parametrize(("exported", "on"), [("1", True), ("true", True), ("0", False), (None, None)])
def test_the_skipped_decode_lock_is_seen_where_the_engine_exposes_its_environment(
    exported: str | None, on: bool | None
) -> None:
    info = sglang_info()
    if exported is not None:
        info["internal_states"][0]["env_vars"] = {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": exported}
    assert read_server_info(info, "here").flags.get("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK") is on


def _without(*path: Any) -> dict[str, Any]:
    info: Any = sglang_info()
    inner = info
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return info  # type: ignore[no-any-return]


def _with(value: object, *path: Any) -> dict[str, Any]:
    info: Any = sglang_info()
    inner = info
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return info  # type: ignore[no-any-return]


STATE = ("internal_states", 0)


@pytest.mark.parametrize(
    ("info", "named"),
    [
        ({"status": "ok"}, "internal_states is missing"),
        (_with([], "internal_states"), "internal_states is missing or no array"),
        (_with(["a"], "internal_states"), "internal_states is missing or no array"),
        (_without(*STATE, "memory_usage"), "memory_usage is missing"),
        (_without(*STATE, "memory_usage", "token_capacity"), "memory_usage.token_capacity is missing"),
        (_with(True, *STATE, "memory_usage", "token_capacity"), "token_capacity is no count"),
        (_with("5", *STATE, "memory_usage", "token_capacity"), "token_capacity is no count"),
        (_with(-1, *STATE, "memory_usage", "token_capacity"), "token_capacity is no count"),
        (_without(*STATE, "effective_max_running_requests_per_dp"), "requests_per_dp is missing"),
        (_with(1.5, *STATE, "max_mamba_cache_size"), "max_mamba_cache_size is no count"),
    ],
)
def test_a_server_info_without_the_pools_is_refused(info: dict[str, Any], named: str) -> None:
    with serving({"/server_info": json_answer(info)}) as url:
        message = refusal(lambda: observe_engine(url))
    assert named in message
    assert url in message
    assert "0.5.23" in message


# ---------------------------------------------------------------- vLLM over HTTP


def test_vllm_reports_its_blocks() -> None:
    with serving(vllm_routes()) as url:
        got = observe_engine(url + "/v1/")
    assert (got.engine, got.version, got.source, got.ranks) == ("vllm", "0.32.0", url, 1)
    assert (got.page_size, got.blocks, got.kv_tokens, got.pool_bytes) == (384, 170, 40_960, 16_777_216)
    assert (got.max_context, got.max_running_requests, got.state_slots) == (4096, None, None)
    assert got.flags["model"] == "/models/tiny"
    assert got.flags["enable_prefix_caching"] is True
    assert got.flags["num_gpu_blocks_override"] is None


def test_the_blocks_of_several_engines_are_shared() -> None:
    two = VLLM_INFO.replace('num_gpu_blocks="170"', 'num_gpu_blocks="340"')
    got = read_metrics("\n".join((two, two.replace('engine="0"', 'engine="1"'))), "here")
    assert (got.blocks, got.ranks) == (170, 2)
    assert "over 2 engines" in got.origins["blocks"]


def test_a_development_vllm_has_a_server_info_of_its_own() -> None:
    # entrypoints/serve/dev/server_info/api_router.py
    dev = {"vllm_config": "model='/models/tiny', ...", "vllm_env": {}, "system_env": {}}
    with serving({**vllm_routes(), "/server_info": json_answer(dev)}) as url:
        assert observe_engine(url).engine == "vllm"


def test_vllm_is_read_without_version_and_models() -> None:
    denied = json_answer({"error": "Unauthorized"}, 401)
    routes: dict[str, Route] = {**vllm_routes(), "/version": json_answer({}, 404), "/v1/models": denied}
    with serving(routes) as url:
        got = observe_engine(url)
    assert (got.version, got.max_context, got.flags.get("model"), got.blocks) == (None, None, None, 170)


@pytest.mark.parametrize(
    "models", ["[]", "{}", '{"data": []}', '{"data": [7]}', '{"data": [{"root": 1}]}', "x"]
)
def test_odd_models_are_left_out(models: str) -> None:
    with serving(vllm_routes(models=models)) as url:
        got = observe_engine(url)
    assert (got.max_context, got.flags.get("model")) == (None, None)


@pytest.mark.parametrize(
    ("label", "value"), [("num_gpu_blocks", "None"), ("block_size", "many"), ("num_gpu_blocks", "0")]
)
def test_a_label_that_is_no_count_is_refused(label: str, value: str) -> None:
    start = VLLM_INFO.index(f'{label}="') + len(label) + 2
    info = VLLM_INFO[:start] + value + VLLM_INFO[VLLM_INFO.index('"', start) :]
    assert f'the label {label} of vllm:cache_config_info is "{value}"' in refusal(
        lambda: read_metrics(info, "here")
    )


def test_a_missing_label_is_named() -> None:
    info = VLLM_INFO.replace('num_gpu_blocks="170",', "")
    assert "num_gpu_blocks of vllm:cache_config_info is missing" in refusal(
        lambda: read_metrics(info, "here")
    )


def test_escapes_in_labels() -> None:
    info = VLLM_INFO.replace('cache_dtype="auto"', r'cache_dtype="a\"b\\n\n,}"')
    got = read_metrics(info, "here")
    assert got.flags["cache_dtype"] == 'a"b\\n\n,}'
    assert got.blocks == 170


# ---------------------------------------------------------------- what is no engine


HTML: Route = (200, "text/html", b"<!DOCTYPE html><html><body>Welcome to nginx!</body></html>")


@pytest.mark.parametrize(
    ("routes", "named"),
    [
        ({}, "neither /server_info nor /metrics is there (HTTP 404)"),
        ({"/server_info": HTML, "/metrics": HTML}, "answers neither"),
        ({"/server_info": HTML}, "neither /server_info nor /metrics"),
        ({"/server_info": (200, "application/json", b'{"a": \xff'), "/metrics": HTML}, "answers neither"),
        ({"/server_info": json_answer("[" * 100_000), "/metrics": HTML}, "answers neither"),
        ({"/server_info": json_answer("[]"), "/metrics": HTML}, "answers neither"),
        ({"/server_info": (500, "text/plain", b"oh no"), "/metrics": (503, "text/plain", b"")}, "(HTTP 503)"),
        ({"/server_info": json_answer({}, 401)}, "wants an API key (HTTP 401)"),
        (
            {"/metrics": (200, "text/plain", b"sglang:num_running_reqs 0\n")},
            "this SGLang has no /server_info",
        ),
        ({"/metrics": (200, "text/plain", b"# vllm:cache_config_info{")}, "answers neither"),
    ],
)
def test_another_server_is_refused(routes: dict[str, Route], named: str) -> None:
    with serving(routes) as url:
        message = refusal(lambda: observe_engine(url))
    assert named in message
    assert url in message
    assert "--log" in message


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        message = refusal(lambda: observe_engine(url))
    assert "cannot be reached (Connection refused)" in message
    assert url in message


def test_a_name_that_does_not_resolve() -> None:
    assert "cannot be reached" in refusal(lambda: observe_engine("http://engine.invalid:30000", 30))


def test_redirects_without_end() -> None:
    def again(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", "/server_info")
        handler.end_headers()

    with serving({"/server_info": again}) as url:
        assert "redirects without end" in refusal(lambda: observe_engine(url, 30))


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "dripping"])
def test_a_slow_server_is_given_up(drips: bool) -> None:
    over = threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        if drips:  # a byte often enough that no socket operation takes long
            handler.send_response(200)
            handler.end_headers()
        while not over.wait(0.05):
            if drips:
                handler.wfile.write(b" ")
                handler.wfile.flush()

    with serving({"/server_info": slow}) as url:
        message = refusal(lambda: observe_engine(url, timeout_s=0.3))
        over.set()
    assert "/server_info did not answer within 0.3 s; raise --timeout-s" in message


def test_a_server_of_another_protocol() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert "cannot be reached (" in refusal(lambda: observe_engine(url, 30))
        thread.join()


def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LARGEST_ANSWER", 1000)
    with serving({"/server_info": (200, "application/json", b"x" * 2000)}) as url:
        assert "/server_info is larger than" in refusal(lambda: observe_engine(url))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://[::1",
        "file:///etc/passwd",
        "a b",
        "x\ny",
        "http://h:0",
    ],
)
def test_no_address(url: str) -> None:
    assert "engine address" in refusal(lambda: observe_engine(url))


def test_a_password_is_neither_sent_nor_repeated() -> None:
    message = refusal(lambda: observe_engine("http://me:secret@host:1"))
    assert "secret" not in message


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), True, "5", 1e9])
def test_no_timeout(timeout_s: Any) -> None:
    assert "timeout_s is" in refusal(lambda: observe_engine("http://127.0.0.1:1", timeout_s))


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/metrics", "/server_info"])
def test_the_address_may_be_that_of_a_client(suffix: str) -> None:
    with serving({"/server_info": json_answer(sglang_info())}) as url:
        assert observe_engine(url.removeprefix("http://") + suffix).source == url


def test_a_path_before_the_engine_is_kept() -> None:
    with serving({"/west/server_info": json_answer(sglang_info())}) as url:
        assert observe_engine(f"{url}/west/v1").state_slots == 306


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    # The environment is read when a process begins: in a process of its own.
    code = (
        "import sys; from coresched.capacity.observed import observe_engine; "
        "print(observe_engine(sys.argv[1]).state_slots)"
    )
    with serving({"/server_info": json_answer(sglang_info())}) as url:
        done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("306\n", "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
INNER_NAMES = ["memory_usage", "effective_max_running_requests_per_dp", "max_mamba_cache_size", "env_vars"]


@SLOW_MACHINE
@given(
    top=st.dictionaries(st.sampled_from(list(sglang_info())), json_values, max_size=4),
    state=st.dictionaries(st.sampled_from(INNER_NAMES), json_values, max_size=3),
    usage=st.dictionaries(st.sampled_from(["token_capacity", "kvcache"]), json_values, max_size=2),
)
def test_whatever_server_info_holds_gives_pools_or_a_refusal(
    top: dict[str, Any], state: dict[str, Any], usage: dict[str, Any]
) -> None:
    info = sglang_info()
    info["internal_states"][0]["memory_usage"].update(usage)
    info["internal_states"][0].update(state)
    info.update(top)
    got = outcome(lambda: read_server_info(info, "here"))
    if isinstance(got, str):
        assert got.isprintable()
    else:
        assert isinstance(got.kv_tokens, int)
        assert got.kv_tokens >= 0


@SLOW_MACHINE
@given(st.lists(st.sampled_from(VLLM_METRICS.split('"')) | st.text(max_size=20), max_size=120).map('"'.join))
def test_whatever_metrics_hold_gives_pools_or_a_refusal(text: str) -> None:
    for metrics in (text, VLLM_INFO[: len(text)] + text, "vllm:cache_config_info{" + text):
        got = outcome(lambda metrics=metrics: read_metrics(metrics, "here", models=text))
        if isinstance(got, str):
            assert "\n" not in got
        else:
            assert got.blocks is not None
