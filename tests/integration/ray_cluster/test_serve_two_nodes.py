"""A proxy and replicas on each of two local nodes: two routers, the same slots, loads of their own."""

from typing import Any

import pytest
from integration.ray_cluster.scenario_programs import scenario

from coresched.core.ring import LoadBoundedRouter

pytestmark = pytest.mark.ray

SLOTS = [f"slot-{slot}" for slot in range(4)]


@pytest.fixture(scope="module")
def found() -> Any:
    return scenario("two_nodes.py")


def in_turns(labels: list[str], routers: int) -> list[int]:
    """The choices of routers that get every other request."""
    rings = [LoadBoundedRouter(SLOTS, 1.25) for _ in range(routers)]
    return [SLOTS.index(rings[i % routers].route(label)) for i, label in enumerate(labels)]


@pytest.mark.parametrize("case", ["hot", "uniform"])
def test_each_proxy_alone_chooses_as_one_router(found: Any, case: str) -> None:
    assert found["nodes of replicas"] == 2
    for proxy in ("head", "worker"):
        split = found[f"{case} {proxy}"]
        assert split["ranks"] == in_turns(split["labels"], 1)


@pytest.mark.parametrize("case", ["hot", "uniform"])
def test_both_proxies_choose_as_two_routers_that_do_not_know_of_each_other(found: Any, case: str) -> None:
    split = found[f"{case} both"]
    assert split["ranks"] == in_turns(split["labels"], 2)
