import pytest

import coresched.client.local


class Clock:
    """The batch's clock, moved by hand, so that times can be compared exactly."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(coresched.client.local, "time", clock)
    return clock
