"""What of vLLM's configuration is refused before an engine in virtual time boots."""

from types import SimpleNamespace
from typing import Any

import pytest
from coresched_vllm.fleet.flags import refusal


def config(parallel: dict[str, int] | None = None, runner: str = "generate", **parts: Any) -> Any:
    return SimpleNamespace(
        parallel_config=SimpleNamespace(**{"tensor_parallel_size": 4, **(parallel or {})}),
        model_config=SimpleNamespace(runner_type=runner),
        **parts,
    )


def test_what_can_be_simulated_is_not_refused() -> None:
    assert refusal(config(lora_config=None), ["--max-model-len", "100"]) is None


@pytest.mark.parametrize(
    ("found", "flags", "said"),
    [
        (config({"pipeline_parallel_size": 2}), [], "--pipeline-parallel-size is 2; pipeline stages"),
        (config({"data_parallel_size": 3}), [], "--data-parallel-size is 3; give more --workers instead"),
        (config(speculative_config=object()), [], "--speculative-config is given, but drafts"),
        (config(kv_transfer_config=object()), [], "--kv-transfer-config is given, but KV bytes"),
        (config(lora_config=object()), [], "--enable-lora is given, but adapters"),
        (config(runner="pooling"), [], "--runner is pooling; only generating models"),
        (
            config(),
            ["--attention-backend=FLASHMLA"],
            "--attention-backend is given, but there are no kernels",
        ),
        (config(), ["--attention_backend", "FLASHMLA"], "give --block-size"),
    ],
)
def test_what_cannot_be_is_named_with_the_fix(found: Any, flags: list[str], said: str) -> None:
    assert said in (refusal(found, flags) or "")
