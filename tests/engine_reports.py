"""What engines report about themselves, and a server that answers with it.

The vLLM texts were recorded from vLLM 0.32.0 (its CPU build) serving a Qwen3-Next of four layers, except for
what is cut out. The SGLang ones are written after the files of SGLang 0.5.23 that make them, named below.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from coresched.capacity.observed import ObservedPools
from coresched.errors import InputError

Answer = tuple[int, str, bytes]
Route = Answer | Callable[[BaseHTTPRequestHandler], None]

GIB = 1 << 30

# Ling-3.0-flash on 4 ranks: 8,064 bytes a KV token, 18,995,200 bytes a float32 state. Of 65.8 GiB the ratio
# 0.09 makes K = 306 slots and 8,038,279 tokens, and with S = 5 that is 61 running requests.
SGLANG_FLAGS: dict[str, object] = {
    "model_path": "inclusionAI/Ling-3.0-flash",
    "context_length": None,
    "dtype": "auto",
    "kv_cache_dtype": "auto",
    "mem_fraction_static": 0.85,
    "max_running_requests": None,
    "max_total_tokens": None,
    "schedule_policy": "fcfs",
    "page_size": 1,
    "disable_radix_cache": False,
    "enable_unified_memory": False,
    "disable_overlap_schedule": False,
    "tp_size": 4,
    "dcp_size": 1,
    "pp_size": 1,
    "dp_size": 1,
    "attn_dp_size": 1,
    "api_key": "sk-secret",
    "speculative_algorithm": None,
    "speculative_draft_model_path": None,
    "speculative_num_draft_tokens": None,
    "max_mamba_cache_size": None,
    "mamba_ssm_dtype": None,
    "mamba_max_states_per_path": -1,
    "mamba_full_memory_ratio": 0.09,
    "mamba_radix_cache_strategy": "extra_buffer",
    "uses_mamba_radix_cache": True,
    "enable_int8_mamba_checkpoint": False,
    "enable_linear_replayssm": False,
    "enable_linear_replayssm_spec": False,
    "enable_broadcast_mm_inputs_process": False,
    "mm_process_config": {},
}
"""Of ServerArgs.resolved_dict (server_args.py), the fields around those that are read."""

LING_KV, LING_STATE, LING_PAGE = 8064, 18_995_200, 1


def sglang_info(
    flags: Mapping[str, object] = {}, *, slots: int | None = 306, tokens: int = 8_038_279, running: int = 61
) -> dict[str, Any]:
    """GET /server_info: entrypoints/http_server.py ``server_info`` over common.py ``build_server_info``.

    internal_states[] as managers/scheduler_components/internal_state.py and memory_usage.py build it.
    """
    resolved = {**SGLANG_FLAGS, **flags}
    state = {
        **resolved,
        "max_mamba_cache_size": slots,
        "world_size": 4,
        "startup_time": 93.1,
        "effective_max_running_requests_per_dp": running,
        "last_gen_throughput": 0.0,
        "memory_usage": {
            "weight": 31.07,
            "kvcache": round((tokens + LING_PAGE) * LING_KV / GIB, 3),
            "startup_available": 9.81,
            "token_capacity": tokens,
            "token_capacity_swa": None,
            "graph": {"decode": 0.412},
        },
    }
    return {
        **resolved,
        "launch_command": "python -m sglang.launch_server --model-path inclusionAI/Ling-3.0-flash --tp 4",
        "status": "ready",
        "max_total_num_tokens": tokens,
        "max_req_input_len": 131_066,
        "kv_events": None,
        "startup_time": 93.4,
        "internal_states": [state],
        "version": "0.5.23",
        "frontend": "python",
    }


def sglang_log(
    flags: Mapping[str, object] = {}, *, slots: int | None = 306, tokens: int = 8_038_279, running: int = 61
) -> str:
    """A boot: lines of entrypoints/{engine,http_server}.py, mem_cache/memory_pool.py, managers/scheduler.py.

    The prefix is utils/common.py's, one process a rank.
    """
    resolved = {**SGLANG_FLAGS, **flags}
    conv = LING_STATE - 18_350_080  # 9,820,160 bytes with bf16 states, whose float32 part is twice as large
    lines = [
        f"[2026-11-28 09:12:31] server_args={resolved!r}",
        "[2026-11-28 09:12:50 TP0] Load weight begin.",
    ]
    for rank in range(4):
        at = f"[2026-11-28 09:13:4{rank} TP{rank}]"
        if slots is not None:
            lines.append(
                f"{at} Mamba Cache is allocated. max_mamba_cache_size: {slots}, "
                f"conv_state size: {(slots + 1) * conv / GIB:.2f}GB, "
                f"ssm_state size: {(slots + 1) * 18_350_080 / GIB:.2f}GB "
            )
        lines += [
            f"{at} KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, "
            f"KV size: {(tokens + LING_PAGE) * LING_KV / GIB:.2f} GB",
            f"{at} Memory pool end. avail mem=10.21 GB",
        ]
    lines += [
        f"[2026-11-28 09:14:02 TP0] max_total_num_tokens={tokens}, chunked_prefill_size=8192, "
        f"max_prefill_tokens=16384, max_running_requests={running}, context_len=131072, "
        "available_gpu_mem=9.81 GB",
        "[2026-11-28 09:14:09] The server is fired up and ready to roll!",
        "[2026-11-28 09:15:00 TP0] Decode batch, #running-req: 3, #full token: 1204, mamba num: 12",
    ]
    return "\n".join(lines) + "\n"


TINY_CONFIG: dict[str, object] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": 32768,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "dtype": "bfloat16",
}
"""The model that the recorded vLLM served."""

VLLM_INFO = (
    'vllm:cache_config_info{_block_size_resolved="True",block_size="384",cache_dtype="auto",'
    'cache_hit_alignment_tokens="None",effective_attention_block_size="384",'
    'enable_mamba_shared_prefix_checkpoint="False",enable_prefix_caching="True",engine="0",'
    'gpu_memory_utilization="0.92",hash_block_size="None",is_attention_free="False",'
    'kv_cache_dtype_skip_layers="[]",kv_cache_layout="None",kv_cache_max_concurrency="10.0",'
    'kv_cache_memory_bytes="16777216",kv_cache_size_tokens="40960",kv_offloading_backend="native",'
    'kv_offloading_size="None",kv_sharing_fast_prefill="False",mamba_block_size="16",'
    'mamba_cache_dtype="auto",mamba_cache_mode="align",mamba_page_size_padded="None",'
    'mamba_ssm_cache_dtype="float32",num_cpu_blocks="None",num_gpu_blocks="170",'
    'num_gpu_blocks_override="None",prefix_cache_retention_interval="0",prefix_caching_hash_algo="sha256",'
    'prefix_match_unit="None",replayssm_buffer_len="16",skip_page_size_padded="None",sliding_window="None",'
    'swa_bounded_replay="True",use_kda_recoverssm="False",use_replayssm="False",'
    'user_specified_block_size="False"} 1.0'
)
VLLM_METRICS = f"""\
# HELP python_info Python platform information
# TYPE python_info gauge
python_info{{implementation="CPython",major="3",minor="11",patchlevel="7",version="3.11.7"}} 1.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="/models/tiny"}} 0.0
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
{VLLM_INFO}
"""
VLLM_VERSION = '{"version":"0.32.0"}'
VLLM_MODELS = (
    '{"object":"list","data":[{"id":"/models/tiny","object":"model","created":1796001279,"owned_by":"vllm",'
    '"root":"/models/tiny","parent":null,"max_model_len":4096,"permission":[]}]}'
)
VLLM_LOG = """\
(APIServer pid=16808) INFO 11-30 01:16:23 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0
(APIServer pid=16808) INFO 11-30 01:16:23 [api_utils.py:286] non-default args: {\
'model_tag': '/models/tiny', 'host': '127.0.0.1', 'port': 18766, 'model': '/models/tiny', \
'dtype': 'bfloat16', 'max_model_len': 4096, 'enforce_eager': True, 'load_format': 'dummy', \
'kv_cache_memory_bytes': 16777216, 'enable_prefix_caching': True, \
'max_num_batched_tokens': 1024, 'max_num_seqs': 4}
(EngineCore pid=17205) INFO 11-30 01:16:57 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: \
model='/models/tiny', speculative_config=None, tokenizer='/models/tiny', skip_tokenizer_init=False, \
tokenizer_mode=auto, revision=None, tokenizer_revision=None, trust_remote_code=False, dtype=torch.bfloat16, \
max_seq_len=4096, download_dir=None, load_format=dummy, tensor_parallel_size=1, pipeline_parallel_size=1, \
data_parallel_size=1, decode_context_parallel_size=1, dcp_comm_backend=ag_rs, \
disable_custom_all_reduce=True, quantization=None, quantization_config=None, enforce_eager=True, \
aux_output_config=AuxOutputConfig(enable_return_routed_experts=False, max_bytes=None), kv_cache_dtype=auto, \
device_config=cpu, seed=0, served_model_name=/models/tiny, enable_prefix_caching=True, \
enable_chunked_prefill=True, pooler_config=None, compilation_config={'mode': <CompilationMode.NONE: 0>}
(Worker pid=17400) INFO 11-30 01:17:21 [interface.py:1096] Setting attention block size to 384 tokens to \
ensure that attention page size is >= mamba page size.
(Worker pid=17400) INFO 11-30 01:17:21 [interface.py:1120] Padding mamba page size by 43.28% to ensure that \
mamba page size and attention page size are exactly equal.
(EngineCore pid=17205) INFO 11-30 01:17:21 [kv_cache_utils.py:2327] CPU KV cache size: 40,960 tokens, \
Maximum concurrency for 4,096 tokens per request: 10.00x
INFO:     Application startup complete.
"""


def tiny_model(folder: Path) -> str:
    """A folder with the config.json of the recorded vLLM's model."""
    (folder / "config.json").write_text(json.dumps(TINY_CONFIG), encoding="utf-8")
    return str(folder)


def json_answer(value: object, status: int = 200) -> Answer:
    """An answer in JSON; a text is taken as JSON already."""
    text = value if isinstance(value, str) else json.dumps(value)
    return status, "application/json", text.encode()


def vllm_routes(metrics: str = VLLM_METRICS, models: str = VLLM_MODELS) -> dict[str, Route]:
    """The paths of a vLLM server; there is no /server_info outside its development mode."""
    return {
        "/metrics": (200, "text/plain; version=0.0.4; charset=utf-8", metrics.encode()),
        "/version": json_answer(VLLM_VERSION),
        "/v1/models": json_answer(models),
    }


@contextmanager
def serving(routes: Mapping[str, Route]) -> Iterator[str]:
    """The address of a server that answers GET on these paths, and 404 as FastAPI does on others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            route = routes.get(self.path, json_answer({"detail": "Not Found"}, 404))
            if callable(route):
                route(self)
                return
            status, kind, body = route
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


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
