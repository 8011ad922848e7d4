"""Reading an engine's pools: from answers and boot logs as the engines write them, and from anything else."""

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from engine_reports import (
    GIB,
    VLLM_INFO,
    VLLM_LOG,
    VLLM_METRICS,
    VLLM_MODELS,
    Route,
    json_answer,
    serving,
    sglang_info,
    sglang_log,
    vllm_routes,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coresched.capacity.observed import ObservedPools, endpoint, observe_engine, observe_log
from coresched.capacity.observed.boot_log import LONGEST_LINE
from coresched.capacity.observed.literals import literal
from coresched.capacity.observed.sglang_report import read_server_info
from coresched.capacity.observed.vllm_report import read_metrics
from coresched.errors import InputError


def refusal(call: Callable[[], object]) -> str:
    """The message, after holding it to one line."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert message.isprintable(), message
    return message


def outcome(call: Callable[[], ObservedPools]) -> ObservedPools | str:
    """What is read, or the message of the refusal; any other exception is a failure."""
    try:
        return call()
    except InputError as refused:
        return str(refused)


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
    with serving({"/server_info": json_answer(sglang_info())}) as url:
        assert observe_engine(url).state_slots == 306


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


# ---------------------------------------------------------------- boot logs


def log_file(folder: Path, content: str | bytes) -> Path:
    path = folder / "engine.log"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_sglang_log(tmp_path: Path) -> None:
    got = observe_log(log_file(tmp_path, sglang_log()))
    assert (got.engine, got.version, got.ranks) == ("sglang", None, 1)
    assert (got.state_slots, got.kv_tokens, got.max_running_requests) == (306, 8_038_279, 61)
    assert (got.page_size, got.max_context) == (1, 131_072)
    assert got.flags["model_path"] == "inclusionAI/Ling-3.0-flash"
    assert got.flags["tp_size"] == 4
    assert "api_key" not in got.flags
    assert got.state_pool_bytes is not None
    assert abs(got.state_pool_bytes - 307 * 18_995_200) <= got.rounding_bytes


def test_the_flags_of_older_releases_are_read_too(tmp_path: Path) -> None:
    old = sglang_log().splitlines()
    old[0] = (
        "[2026-05-15 08:39:19] server_args=ServerArgs(model_path='/m/it\\'s', tokenizer_path='/m', "
        "kv_cache_dtype='bf16', page_size=64, mamba_full_memory_ratio=0.5, disable_radix_cache=True, "
        "dtype='auto')"
    )
    got = observe_log(log_file(tmp_path, "\n".join(old)))
    assert got.flags["model_path"] == "/m/it's"
    assert got.flags["kv_cache_dtype"] == "bf16"
    assert got.flags["dtype"] == "auto"
    assert got.flags["disable_radix_cache"] is True
    assert got.page_size == 64


def test_the_pool_of_a_draft_does_not_count(tmp_path: Path) -> None:
    lines = sglang_log().splitlines()
    kv = next(line for line in lines if "KV Cache is allocated" in line)
    draft = kv.replace("KV Cache", "draft KV Cache").replace("60.37", "1.25")
    plain = observe_log(log_file(tmp_path, "\n".join(lines)))
    assert observe_log(log_file(tmp_path, "\n".join([lines[0], draft, *lines[1:]]))) == plain
    states = next(line for line in lines if "Mamba Cache" in line).replace("306", "12")
    assert observe_log(log_file(tmp_path, "\n".join([*lines, states]))) == plain
    split = kv.replace("KV size: 60.37 GB", "K size: 30.18 GB, V size: 30.19 GB")
    assert observe_log(log_file(tmp_path, "\n".join([lines[0], split, *lines[1:]]))) == plain


def test_one_line_a_rank_of_attention_dp(tmp_path: Path) -> None:
    text = sglang_log()
    ready = next(line for line in text.splitlines() if "max_total_num_tokens=" in line)
    got = observe_log(log_file(tmp_path, text + ready.replace("=8038279", "=8038000") + "\n"))
    assert (got.ranks, got.kv_tokens) == (2, 8_038_000)


def test_vllm_log(tmp_path: Path) -> None:
    got = observe_log(log_file(tmp_path, VLLM_LOG))
    assert (got.engine, got.version, got.max_running_requests) == ("vllm", "0.32.0", 4)
    assert (got.page_size, got.kv_tokens, got.max_context, got.pool_bytes) == (384, 40_960, 4096, 16_777_216)
    assert (got.rounding_bytes, got.blocks) == (0, None)
    assert got.flags["model"] == "/models/tiny"
    assert got.flags["dtype"] == "bfloat16"
    assert got.flags["tensor_parallel_size"] == 1


def test_profiled_memory_is_that_of_the_worker_with_least(tmp_path: Path) -> None:
    # v1/worker/gpu_worker.py; releases up to 0.2x log the concurrency on a line of its own
    lines = VLLM_LOG.replace("'kv_cache_memory_bytes': 16777216, ", "").splitlines()
    lines[3:3] = [
        "(Worker_TP0 pid=1) INFO 11-30 01:17:20 [gpu_worker.py:759] Available KV cache memory: 53.54 GiB",
        "(Worker_TP1 pid=2) INFO 11-30 01:17:20 [gpu_worker.py:759] Available KV cache memory: 53.12 GiB",
    ]
    got = observe_log(log_file(tmp_path, "\n".join(lines)))
    assert (got.pool_bytes, got.rounding_bytes) == (round(53.12 * GIB), GIB // 200)


def test_the_last_boot_counts_and_nothing_of_the_first_is_left(tmp_path: Path) -> None:
    first = sglang_log({"mamba_ssm_dtype": "bfloat16", "page_size": 64}, slots=900)
    second = sglang_log(slots=None, tokens=5000, running=2500)
    got = observe_log(log_file(tmp_path, first + second))
    assert got == observe_log(log_file(tmp_path, second))
    assert (got.state_slots, got.kv_tokens, got.page_size) == (None, 5000, 1)
    assert got.flags["mamba_ssm_dtype"] is None


def test_an_engine_that_restarts_without_its_server(tmp_path: Path) -> None:
    core = VLLM_LOG[VLLM_LOG.index("(EngineCore") :]
    again = core.replace("40,960", "20,480")
    got = observe_log(log_file(tmp_path, VLLM_LOG + again))
    assert (got.kv_tokens, got.max_running_requests) == (20_480, None)


def test_another_engine_after_the_first(tmp_path: Path) -> None:
    assert observe_log(log_file(tmp_path, VLLM_LOG + sglang_log())).engine == "sglang"
    assert observe_log(log_file(tmp_path, sglang_log() + VLLM_LOG)).engine == "vllm"


def test_a_boot_that_did_not_come_up_is_no_answer(tmp_path: Path) -> None:
    good = sglang_log()
    crash = "\n".join(good.splitlines()[:5]) + "\nRuntimeError: Not enough GPU memory\n"
    path = log_file(tmp_path, good + crash)
    message = refusal(lambda: observe_log(path))
    assert f"the boot that begins in line {good.count(chr(10)) + 1} " in message
    assert "max_total_num_tokens=" in message
    message = refusal(lambda: observe_log(log_file(tmp_path, VLLM_LOG[: VLLM_LOG.index("(Worker")])))
    assert "KV cache size" in message


def test_huge_lines_are_cut_and_not_taken_for_several(tmp_path: Path) -> None:
    # After the cut, the rest of a line would begin a boot of its own.
    huge = "x" * (3 * LONGEST_LINE) + " server_args={'page_size': 7} max_total_num_tokens=1, \n"
    path = log_file(tmp_path, huge + sglang_log() + huge + "y" * LONGEST_LINE)
    assert observe_log(path) == observe_log(log_file(tmp_path, sglang_log()))


def test_bytes_and_colours_between_the_lines(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 40 + b"\n\xff\xfe\x00\n"
    coloured = noise.join(b"\x1b[36m" + line + b"\x1b[0m\n" for line in VLLM_LOG.encode().splitlines())
    split = coloured.replace(b"KV cache", b"\x1b[1mKV\x1b[0m cache")
    path = log_file(tmp_path, noise + split + noise)
    assert observe_log(path) == observe_log(log_file(tmp_path, VLLM_LOG))


def test_a_prefix_of_docker_compose_does_not_matter(tmp_path: Path) -> None:
    text = "".join(f"engine-1  | {line}\n" for line in sglang_log().splitlines())
    plain = observe_log(log_file(tmp_path, sglang_log()))
    assert observe_log(log_file(tmp_path, text)) == plain


@pytest.mark.parametrize("content", ["", "\n\n", "nothing here\n", "\x00" * 5000])
def test_no_boot(tmp_path: Path, content: str) -> None:
    path = log_file(tmp_path, content)
    message = refusal(lambda: observe_log(path))
    assert "no boot of SGLang" in message
    assert str(path) in message


def test_no_file(tmp_path: Path) -> None:
    assert "No such file" in refusal(lambda: observe_log(tmp_path / "none.log"))
    assert "Is a directory" in refusal(lambda: observe_log(tmp_path))
    assert "cannot be read" in refusal(lambda: observe_log("a\0b"))


LINES = [*sglang_log().splitlines(), *VLLM_LOG.splitlines()]


@SLOW_MACHINE
@given(
    st.lists(
        st.sampled_from(LINES)
        | st.text(max_size=60)
        | st.tuples(st.sampled_from(LINES), st.integers(0, 400), st.text(max_size=5)).map(
            lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] + 3 :]
        ),
        max_size=12,
    )
)
def test_whatever_a_log_holds_gives_pools_or_a_refusal(tmp_path_factory: Any, lines: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.log"
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    got = outcome(lambda: observe_log(path))
    if isinstance(got, str):
        assert got.isprintable()
    else:
        assert got.kv_tokens is not None
        json.dumps(got.flags, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("None", None),
        ("True", True),
        ("12", 12),
        ("0.9", 0.9),
        ("'a\\'b'", "a'b"),
        ('"a"', "a"),
        ("auto", "auto"),
        ("'\\x'", "\\x"),
        ("nan", "nan"),
        ("1e999", "1e999"),
        ("9" * 5000, None),
    ],
)
def test_literals(text: str, value: object) -> None:
    assert literal(text) == value
    assert type(literal(text)) is type(value)


def test_the_recorded_models_answer_is_json() -> None:
    assert json.loads(VLLM_MODELS)["data"][0]["max_model_len"] == 4096
