"""BFCL's environment for these tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from integration.engines.environment import COMPILED_ONCE, EngineEnvironment

HERE = Path(__file__).parent

HARNESS_VERSION = "2026.3.23"

# What bfcl_eval imports from elsewhere. Not bfcl_eval itself, which reads then where its results go.
_LIBRARIES = (
    "aiohttp, anthropic, bs4, boto3, cohere, datamodel_code_generator.parser.jsonschema, dotenv, filelock, "
    "google.genai.types, html2text, httpx2, mistralai, mpmath, msgspec, openai, overrides, pandas, "
    "qwen_agent.llm, rank_bm25, requests, serpapi, tabulate, tenacity, tqdm, tree_sitter_java, "
    "tree_sitter_javascript, typer, writerai"
)

BFCL = EngineEnvironment(
    "bfcl_eval",
    HARNESS_VERSION,
    HERE / "requirements.txt",
    (),
    {**COMPILED_ONCE, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    f"import {_LIBRARIES}",
)


def package() -> Path:
    """The folder of bfcl_eval, with its data. Skips the test where the environment cannot be had."""
    look = "import importlib.util; print(importlib.util.find_spec('bfcl_eval').origin)"
    found = subprocess.run([BFCL.python(), "-c", look], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip()).parent
