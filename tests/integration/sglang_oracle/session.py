"""The engine for a test session, or the reason why tests that need it are skipped."""

from __future__ import annotations

import functools

import pytest
from integration.sglang_oracle.engine import Engine, load_engine
from integration.sglang_oracle.wheel import DIRECTORY_VARIABLE, WheelUnavailable


@functools.cache
def _engine_or_reason() -> Engine | str:
    try:
        return load_engine()
    except WheelUnavailable as error:
        return f"{error}; put the wheel into a folder and name that in {DIRECTORY_VARIABLE}"


def engine_or_skip() -> Engine:
    """The engine's own code. Skips the test when the wheel cannot be had; fails on another release."""
    found = _engine_or_reason()
    if isinstance(found, str):
        pytest.skip(found)
    return found
