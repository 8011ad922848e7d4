"""Slots of replicas: the controller's ranks, or else kept ones and the lowest free."""

import pytest
from coresched_ray.slots import assign_slots, has_ranks, remembered


def test_ranks_are_the_slots_whatever_was_known() -> None:
    assert assign_slots({"a": 2, "b": 1}, ["a", "b"], {"a": 0, "b": 1, "gone": 2}) == {"a": 0, "b": 1}


@pytest.mark.parametrize("ranks", [{}, {"a": 0}, {"a": 0, "b": 0, "c": 0}])
def test_ranks_that_are_missing_or_shared_are_no_slots(ranks: dict[str, int]) -> None:
    assert not has_ranks(["a", "b", "c"], ranks)
    assert assign_slots({}, ["c", "a", "b"], ranks) == {"a": 0, "b": 1, "c": 2}


def test_a_replacement_takes_the_freed_slot_and_the_others_stay() -> None:
    known = assign_slots({}, ["a", "b", "c"], {})
    assert assign_slots(known, ["a", "c", "d"], {}) == {"a": 0, "c": 2, "d": 1}
    assert assign_slots(known, ["a", "c"], {}) == {"a": 0, "c": 2}


def test_a_slot_is_remembered_until_another_replica_has_it() -> None:
    known = {"a": 0, "b": 1}
    assert remembered(known, {"a": 0}) == known
    assert remembered(known, {"a": 0, "c": 1}) == {"a": 0, "c": 1}
