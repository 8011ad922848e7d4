"""inspect-ai's environment for these tests; `CORESCHED_INSPECT_AI_PYTHON` names another interpreter."""

from __future__ import annotations

from pathlib import Path

from integration.engines.environment import COMPILED_ONCE, EngineEnvironment

INSPECT_VERSION = "0.3.285"

INSPECT = EngineEnvironment(
    "inspect_ai",
    INSPECT_VERSION,
    Path(__file__).parent / "requirements.txt",
    (),
    COMPILED_ONCE,
    "import inspect_ai._cli.main, inspect_ai.model._providers.openai_compatible, trio",
)
