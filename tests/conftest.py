"""What holds for all tests."""

import signal
from itertools import groupby

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("noisy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("noisy")

# A shell has SIGINT ignored in what it runs in the background, and children of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW = ("packaging", "vllm", "sglang", "ray")
"""Markers of files that take minutes, and first install something that others of the kind wait for."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first, of each kind in turn; else one worker has some left when the others have ended."""
    seen = dict.fromkeys(SLOW, 0)
    place = {}
    for path, of_file in groupby(items, key=lambda item: item.path):
        test = next(of_file)
        kind = next((name for name in SLOW if test.get_closest_marker(name)), None)
        if kind:
            place.setdefault(path, (seen[kind], SLOW.index(kind)))
            seen[kind] += 1
    last = (len(items), 0)
    items.sort(key=lambda item: place.get(item.path, last))
