"""The log statements of SGLang's own files, rendered by their own code, are read as the boot they report."""

import ast
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from integration.sglang_oracle.wheel import Wheel, WheelUnavailable, find_wheel

from coresched.capacity.observed.sglang_report import FLAGS, SglangBoot
from coresched.capacity.sglang import ENGINE_VERSION

GIB = 1 << 30


@pytest.fixture(scope="module")
def wheel() -> Wheel:
    try:
        return find_wheel(ENGINE_VERSION)
    except WheelUnavailable as reason:
        pytest.skip(str(reason))


def rendered(source: str, part: str, names: Mapping[str, Any]) -> list[str]:
    """Every f-string of a logger call in the source that has the part, with these names."""
    texts = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.JoinedStr):
            continue
        if ast.unparse(node.func) == "logger.info" and part in ast.unparse(node.args[0]):
            code = compile(ast.Expression(node.args[0]), "log line", "eval")
            texts.append(f"[2026-11-28 09:13:40 TP0] {eval(code, dict(names))}\n")
    assert texts, part
    return texts


def test_the_engines_lines_are_read(wheel: Wheel) -> None:
    launch = rendered(
        wheel.text("sglang/srt/entrypoints/engine.py"),
        "server_args=",
        {
            "_server_args_for_logging": dict,
            "server_args": {"model_path": "/m", "page_size": 64, "tp_size": 4},
        },
    )
    pools = wheel.text("sglang/srt/mem_cache/memory_pool.py")
    states = rendered(
        pools,
        "Mamba Cache is allocated",
        {
            "size": 306,
            "GB": GIB,
            "conv_state": 1 * GIB,
            "temporal_state": 5 * GIB,
            "get_tensor_size_bytes": int,
            "intermediate_ssm_gb": 0.5,
            "self": SimpleNamespace(_intermediate_conv_window_phys=GIB),
        },
    )
    assert len(states) == 2  # with and without speculation
    numbers = {
        "cache_name": "KV Cache",
        "num_tokens": 640,
        "k_size_GB": 3.0,
        "v_size_GB": 4.0,
        "kv_size_GB": 7.0,
    }
    pool = SimpleNamespace(post_capture_active=False, dtype="torch.bfloat16")
    kv = rendered(pools, "VA upper bound", {**numbers, "self": pool})
    assert len(kv) == 2  # two tensors, or one for MLA
    ready = rendered(
        wheel.text("sglang/srt/managers/scheduler.py"),
        "max_total_num_tokens=",
        {
            "self": SimpleNamespace(
                max_total_num_tokens=640,
                max_prefill_tokens=16_384,
                max_running_requests=61,
                model_config=SimpleNamespace(context_len=131_072),
                device="cuda",
                startup_available_gpu_memory_gb=9.81,
            ),
            "get_schedule": lambda: SimpleNamespace(chunked_prefill_size=8192),
        },
    )
    for a_launch in launch:
        for a_state in states:
            for a_kv in kv:
                boot = SglangBoot()
                for line in (a_launch, a_state, a_kv, *ready):
                    boot.read(line)
                assert boot.needed is None
                got = boot.pools("here")
                assert (got.state_slots, got.kv_tokens, got.max_running_requests) == (306, 640, 61)
                assert (got.state_pool_bytes, got.kv_pool_bytes) == (6 * GIB, 7 * GIB)
                assert (got.max_context, got.page_size, got.flags["tp_size"]) == (131_072, 64, 4)


def test_the_engine_has_the_fields_that_are_read(wheel: Wheel) -> None:
    fields = wheel.text("sglang/srt/arg_groups/field_order.py")
    assert [name for name in FLAGS if f'"{name}"' not in fields] == []
    components = "sglang/srt/managers/scheduler_components/"
    assert 'state["effective_max_running_requests_per_dp"] =' in wheel.text(components + "internal_state.py")
    memory = wheel.text(components + "memory_usage.py")
    assert all(f'"{name}":' in memory for name in ("token_capacity", "kvcache"))
    assert '"internal_states": internal_states' in wheel.text("sglang/srt/entrypoints/http_server.py")
