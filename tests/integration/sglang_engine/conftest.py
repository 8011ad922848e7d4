"""Fixtures of the tests that run the real engine."""

from pathlib import Path

import pytest
from integration.sglang_engine.environment import engine_python


@pytest.fixture(scope="session")
def sglang_python() -> Path:
    """An interpreter with SGLang 0.5.23 and this checkout's coresched, with its entry points."""
    return engine_python()
