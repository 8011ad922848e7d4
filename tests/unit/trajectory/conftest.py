"""The recorded traces that lie beside a developer's checkout."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture
def recorded_traces() -> list[Path]:
    paths = sorted(SHARED_DATA.glob("*.jsonl"))
    if not paths:
        pytest.skip("the recorded traces are not beside this checkout")
    return paths
