"""Reading an engine's pools from its boot log: as the engines write it, twice in a file, cut, garbled."""

import json
from pathlib import Path
from typing import Any

import pytest
from engine_reports import GIB, VLLM_LOG, outcome, refusal, sglang_log
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coresched.capacity.observed import observe_log
from coresched.capacity.observed.boot_log import LONGEST_LINE
from coresched.capacity.observed.literals import literal

SLOW_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


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


@pytest.mark.parametrize(("reserve", "skips"), [(4, True), (5, False), (7, False)])
def test_a_lower_reserve_shows_the_variable_that_no_line_has(
    tmp_path: Path, reserve: int, skips: bool
) -> None:
    capped = (
        "[2026-11-28 09:13:39 TP0] max_running_requests is capped to 61 by the mamba state cache "
        f"(max_mamba_cache_size=306, {reserve} state slots per request). To raise it: ..."
    )
    pools = observe_log(log_file(tmp_path, sglang_log().replace("\n", f"\n{capped}\n", 1)))
    assert pools.switch("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK") is skips


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
