"""mini-swe-agent's environment for these tests; `CORESCHED_MINISWEAGENT_PYTHON` names another interpreter."""

from __future__ import annotations

from pathlib import Path

from integration.engines.environment import COMPILED_ONCE, EngineEnvironment

_OFFLINE = {
    **COMPILED_ONCE,
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else 7 s of attempts to fetch it
    "MSWEA_SILENT_STARTUP": "1",
    "MSWEA_COST_TRACKING": "ignore_errors",
}
"""For every process of the harness."""

MINI_SWE_AGENT = EngineEnvironment(
    "minisweagent",
    "2.4.6",
    Path(__file__).with_name("requirements.txt"),
    (),
    _OFFLINE,
    # Not minisweagent itself, which reads then where its settings are.
    "import datasets, jinja2, litellm, prompt_toolkit, pydantic, rich.live, tenacity, typer",
)
