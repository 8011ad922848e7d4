"""vLLM's environment for these tests; `CORESCHED_VLLM_PYTHON` names another interpreter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from coresched_vllm.virtual.boot import ENVIRONMENT
from integration.engines.environment import COMPILED_ONCE, EngineEnvironment

HERE = Path(__file__).parent

ENGINE_VERSION = "0.32.0"

OFFLINE = {
    **ENVIRONMENT,
    **COMPILED_ONCE,
    "OMP_NUM_THREADS": "1",  # more wait for each other
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
"""For every process of the engine: nothing is fetched or sent, and the engine is in the process itself."""

_VLLM = (
    "vllm.entrypoints.cli.serve, vllm.entrypoints.openai.api_server, "
    "vllm.v1.core.sched.async_scheduler, vllm.v1.structured_output, vllm.v1.worker.cpu_worker"
)
# vLLM's CPU build is distributed under another name than the one by which vLLM looks for its own version.
VLLM = EngineEnvironment(
    "vllm",
    ENGINE_VERSION,
    HERE / "requirements.txt",
    (HERE / "metadata",),
    OFFLINE,
    f"import {_VLLM}, transformers",
)

_TORCH = (
    "torch._inductor.standalone_compile, torch._inductor.lowering, torch._inductor.kernel.flex.flex_attention"
)
LIBRARIES = replace(VLLM, imports=f"import {_TORCH}, transformers.models.auto.tokenization_auto")
"""Without vLLM itself, for its other releases: two thirds of what loading one takes."""


def engine_python() -> Path:
    """The interpreter. Skips the test where it cannot be had; fails where its installation does."""
    return VLLM.python()
