"""Replicas of a real Ray Serve killed under requests of which many are cancelled."""

import pytest
from integration.ray_cluster.scenario_programs import scenario

pytestmark = [pytest.mark.ray, pytest.mark.by_hand]


def test_nothing_is_counted_once_all_have_ended() -> None:
    found = scenario("storm.py")
    assert found["ended"]["cancelled"] > 100
    assert (found["assigned"], found["loads"]) == (0, 0)
