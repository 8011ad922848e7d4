"""Ray's environment for these tests; `CORESCHED_RAY_PYTHON` names another interpreter."""

from __future__ import annotations

from pathlib import Path

from integration.engines.environment import COMPILED_ONCE, EngineEnvironment

RAY_VERSION = "2.60.0"

RAY = EngineEnvironment(
    "ray",
    RAY_VERSION,
    Path(__file__).parent / "requirements.txt",
    (),
    {**COMPILED_ONCE, "RAY_USAGE_STATS_ENABLED": "0"},
    "import ray, ray.serve, ray.cluster_utils, httpx",
)
