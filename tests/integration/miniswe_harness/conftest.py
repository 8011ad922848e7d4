"""Fixtures of the tests that run the real harness."""

from pathlib import Path

import pytest
from integration.miniswe_harness.environment import MINI_SWE_AGENT


@pytest.fixture(scope="session")
def harness_python() -> Path:
    """An interpreter with mini-swe-agent and this checkout's coresched."""
    return MINI_SWE_AGENT.python()
