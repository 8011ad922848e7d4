"""SGLang's own server on the simulated device: one boot of it, and what it then does."""

import json
import os
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from coresched.capacity.footprint import footprint
from coresched.capacity.observed import observe_engine
from coresched.capacity.sglang import SglangFlags, solve_pools
from coresched.cli.main import main

pytestmark = [pytest.mark.sglang, pytest.mark.by_hand]

CHECKOUT = Path(__file__).parents[3]
GIB = 1 << 30

# Qwen3-Next-80B-A3B, whose dimensions are public.
CONFIG = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e7,
    "partial_rotary_factor": 0.25,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "full_attention_interval": 4,
    "decoder_sparse_step": 1,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "norm_topk_prob": True,
    "mlp_only_layers": [],
    "max_position_embeddings": 262144,
    "vocab_size": 151936,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
CONTEXT = 65_536
FRACTION = 0.85


@dataclass
class Simulated:
    """A running `coresched sglang-sim`, the line it printed, and the model's config.json."""

    url: str
    line: str
    config: Path


def command(python: Path, config: Path, log: Path, *flags: str) -> list[str]:
    return [
        *(str(python), "-m", "coresched", "sglang-sim", "--model-config", str(config)),
        *("--memory", "80GiB", "--weights", "50GiB", "--speed", "20", "--log", str(log)),
        *("--", *flags),
    ]


def environment() -> dict[str, str]:
    paths = [str(CHECKOUT), str(CHECKOUT / "adapters"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "config.json"
    file.write_text(json.dumps(CONFIG))
    return file


@pytest.fixture(scope="module")
def simulated(sglang_python: Path, config: Path) -> Iterator[Simulated]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    log = config.parent / "sglang.log"
    flags = ("--port", str(port), "--context-length", str(CONTEXT), "--enable-cache-report")
    started = command(sglang_python, config, log, *flags, "--mem-fraction-static", str(FRACTION))
    with subprocess.Popen(started, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()[-4000:]
            yield Simulated(f"http://127.0.0.1:{port}", line, config)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.terminate()  # which ends its server too


def generate(server: Simulated, **fields: Any) -> dict[str, Any]:
    answer = httpx.post(f"{server.url}/generate", json=fields, timeout=60)
    answer.raise_for_status()
    return dict(answer.json())


def prompt(length: int) -> list[int]:
    """Tokens that no other prompt begins with."""
    beginning = list(uuid.uuid4().bytes)
    return (beginning * (length // len(beginning) + 1))[:length]


def test_pools_and_running_requests_are_those_of_our_arithmetic(simulated: Simulated) -> None:
    model = footprint(str(simulated.config), "sglang", tp=1)
    memory = (80 - 50 - 80 * (1 - FRACTION)) * GIB
    expected = solve_pools(SglangFlags(context_length=CONTEXT), memory, model.kv_bytes, model.state_bytes)
    pools = observe_engine(simulated.url)
    assert pools.state_slots == expected.state_slots
    assert pools.kv_tokens == expected.kv_tokens
    assert pools.max_running_requests == expected.max_running_requests
    assert simulated.line == (
        f"coresched sglang-sim: listening on {simulated.url}: {expected.kv_tokens:,} KV tokens, "
        f"{expected.state_slots:,} state slots, {expected.max_running_requests} running requests at most\n"
    )


def test_doctor_and_plan_read_it(simulated: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--engine", simulated.url, "--model", str(simulated.config), "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert "ok" in {finding["status"] for finding in findings if finding["topic"] == "pools"}
    workload = ("--turns", "8", "--prompt", "3000", "--output", "64", "--response", "600")
    assert main(["plan", str(simulated.config), "--from-engine", simulated.url, *workload, "--json"]) == 0


def test_a_reply_has_the_length_asked_for_and_is_the_requests_own(simulated: Simulated) -> None:
    tokens = prompt(300)
    answers = [
        generate(simulated, input_ids=tokens, sampling_params={"max_new_tokens": 40}) for _ in range(2)
    ]
    assert [answer["meta_info"]["completion_tokens"] for answer in answers] == [40, 40]
    assert {answer["meta_info"]["finish_reason"]["type"] for answer in answers} == {"length"}
    assert answers[0]["output_ids"] != answers[1]["output_ids"]


def test_the_next_turn_reuses_the_turn_before(simulated: Simulated) -> None:
    first = prompt(3000)
    reply = generate(simulated, input_ids=first, sampling_params={"max_new_tokens": 8})
    assert reply["meta_info"]["cached_tokens"] == 0
    second = generate(
        simulated,
        input_ids=[*first, *reply["output_ids"], *prompt(700)],
        sampling_params={"max_new_tokens": 1},
    )
    # A hybrid model resumes at a state that was saved, every 64 tokens in a prefill.
    assert second["meta_info"]["cached_tokens"] == 3000 // 64 * 64


def test_a_chat_goes_on_and_streams(simulated: Simulated) -> None:
    with OpenAI(base_url=f"{simulated.url}/v1", api_key="none", max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": f"{uuid.uuid4()} " * 40}]
        first = client.chat.completions.create(model="m", messages=messages)
        assert first.choices[0].finish_reason == "stop"
        assert first.usage is not None
        assert 32 <= first.usage.completion_tokens <= 287
        content = first.choices[0].message.content
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": "and then?"}]
        second = client.chat.completions.create(model="m", messages=messages, max_tokens=4)
        assert second.usage is not None
        assert second.usage.prompt_tokens_details is not None
        # 64 tokens before the end of the first prompt, or further: its end is not on the grid of states.
        assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 64
        parts = list(client.chat.completions.create(model="m", messages=messages, max_tokens=12, stream=True))
        text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
        assert len(text) == 12  # a byte is a token


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"return_logprob": True}, "no log probabilities"),
        ({"sampling_params": {"json_schema": "{}"}}, "leave json_schema"),
    ],
)
def test_what_cannot_be_answered_is_refused_and_the_server_goes_on(
    simulated: Simulated, fields: dict[str, Any], words: str
) -> None:
    answer = httpx.post(f"{simulated.url}/generate", json={"text": "a", **fields}, timeout=60)
    assert answer.status_code == 400
    assert words in answer.text
    assert generate(simulated, text="a", sampling_params={"max_new_tokens": 2})["output_ids"]


FACTS = """
import json, sys
import torch
from coresched_simdevice import flags
from coresched_simdevice.hooks import HOOKS, Hook, missing_hooks, unsupported
from coresched_simdevice.memory import byteless_tensors
from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import ServerArgs

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler."
facts = {"unsupported": unsupported(), "hooks": len(HOOKS), "unhooked": len(missing_hooks())}
load_plugins()
facts["unhooked with the plugin"] = missing_hooks()
facts["unknown flags"] = sorted(
    {*flags.ONE_DEVICE, *flags.SWITCHES} - set(ServerArgs(model_path="none").resolved_dict())
)
lost = [
    Hook(SCHEDULER + "no_such", "AFTER", print),
    Hook(SCHEDULER + "run_batch", "AFTER", print, ("no_such",)),
]
facts["lost"] = unsupported(lost, {"sglang.srt.managers.utils.GenerationBatchResult": ("no_such",)})

with byteless_tensors():
    pool = torch.zeros((1 << 30, 8, 128), dtype=torch.bfloat16)
    table = torch.zeros((1 << 16, 1 << 14), dtype=torch.int32)
    small = torch.zeros(4, dtype=torch.float32)
    listed = torch.empty(size=[2, 1 << 30], dtype=torch.uint8)
table[5, 7] = 3
small[1] = 2
facts["pool"] = [list(pool.shape), pool.nbytes, list(listed.shape)]
facts["table"], facts["small"] = [int(table[5, 7]), int(table[5].sum())], small.tolist()
try:
    pool[:, 0] = 1
except RuntimeError as error:
    facts["written"] = str(error)

try:
    args = ServerArgs(model_path=sys.argv[1], device="cpu", attention_backend="torch_native", pp_size=2)
    args.resolve_once()
except SystemExit as end:
    facts["exit code"] = end.code
print(json.dumps(facts))
"""


@dataclass
class Engine:
    """What was found out inside SGLang's interpreter, and what that wrote to stderr."""

    facts: dict[str, Any]
    errors: str


@pytest.fixture(scope="module")
def engine(sglang_python: Path, config: Path) -> Engine:
    device = {"": "1", "_MEMORY": "80GiB", "_WEIGHTS": "50GiB"}
    ran = subprocess.run(
        [str(sglang_python), "-c", FACTS, str(config.parent)],
        env=environment() | {f"CORESCHED_SIMDEVICE{name}": value for name, value in device.items()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return Engine(json.loads(ran.stdout.splitlines()[-1]), ran.stderr)


def test_every_place_and_flag_that_is_relied_on_exists(engine: Engine) -> None:
    assert engine.facts["unsupported"] == []
    assert engine.facts["unknown flags"] == []


def test_what_another_version_lacks_is_named(engine: Engine) -> None:
    assert engine.facts["lost"] == [
        "sglang.srt.managers.scheduler.Scheduler.no_such "
        "(type object 'Scheduler' has no attribute 'no_such')",
        "sglang.srt.managers.scheduler.Scheduler.run_batch(no_such)",
        "sglang.srt.managers.utils.GenerationBatchResult.no_such",
    ]


def test_hooks_that_were_not_applied_are_noticed(engine: Engine) -> None:
    assert engine.facts["unhooked"] == engine.facts["hooks"] > 0
    assert engine.facts["unhooked with the plugin"] == []


def test_a_flag_that_cannot_be_simulated_ends_the_server_with_a_line(engine: Engine) -> None:
    assert engine.facts["exit code"] == 2
    assert "coresched_simdevice: --pp-size is 2; pipeline stages cannot be simulated" in engine.errors


def test_tensors_without_bytes_have_a_shape_and_refuse_to_be_written(engine: Engine) -> None:
    assert engine.facts["pool"] == [[1 << 30, 8, 128], 2 << 40, [2, 1 << 30]]
    assert "single memory location" in engine.facts["written"]
    assert engine.facts["table"] == [3, 3]
    assert engine.facts["small"] == [0, 2, 0, 0]
