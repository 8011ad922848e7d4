"""Fixtures of the tests that run the real engine."""

from pathlib import Path

import pytest
from integration.vllm_engine.environment import engine_python


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """An interpreter with vLLM 0.32.0 and this checkout's coresched, with its entry points."""
    return engine_python()
