"""The floor does what the core does, or it would be no floor of it."""

import ctypes

import mmh3
import pytest

from bench.floor import Rank, compiler, hash_and_search, library, one_sort

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")


def test_labels_are_hashed_as_by_mmh3_and_the_next_point_is_found() -> None:
    labels = ["a", "task-000123", "gpu-ü" * 9, *("x" * length for length in range(1, 40))]
    positions = sorted(mmh3.hash64(f"w{number}", signed=False)[0] for number in range(64))
    loaded = library()
    assert loaded is not None
    found = []
    real = loaded.floor_search

    def noted(state: ctypes.Structure, operations: int) -> None:
        before = state.found
        real(state, operations)
        found.append((state.found - before) % 2**64)

    loaded.floor_search = noted
    try:
        subject = hash_and_search(labels, positions)["floor: hash+search"]
    finally:
        loaded.floor_search = real
    for _ in labels:
        subject(1)
    hashes = [mmh3.hash64(label, seed=1, signed=False)[0] for label in labels]
    assert found == [next((p for p in positions if p >= hashed), positions[0]) for hashed in hashes]


def test_a_sort_begins_with_the_least_key_each_time() -> None:
    loaded = library()
    assert loaded is not None
    subject = one_sort([Rank(1, 0.0), Rank(-5, 2.0), Rank(-5, 1.0), Rank(-4, 0.5)])["floor: sort"]
    assert subject(1) == 2
    assert subject(3) == 6
