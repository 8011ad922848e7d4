"""SGLang's environment for these tests; `CORESCHED_SGLANG_PYTHON` names another interpreter."""

from __future__ import annotations

from pathlib import Path

from integration.engines.environment import CHECKOUT, COMPILED_ONCE, EngineEnvironment

__all__ = ["CHECKOUT", "ENGINE_VERSION", "HERE", "OFFLINE", "engine_python"]

HERE = Path(__file__).parent

ENGINE_VERSION = "0.5.23"

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1", **COMPILED_ONCE}
"""For every process of the engine: nothing is fetched, and one thread, since more wait for each other."""

_ENVIRONMENT = EngineEnvironment(
    "sglang",
    ENGINE_VERSION,
    HERE / "requirements.txt",
    (HERE / "stubs",),
    OFFLINE,
    "import sglang.srt.entrypoints.http_server, sglang.srt.models.registry",
)


def engine_python() -> Path:
    """The interpreter. Skips the test where it cannot be had; fails where its installation does."""
    return _ENVIRONMENT.python()
