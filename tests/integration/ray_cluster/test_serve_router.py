"""The request router in a real Ray Serve, three replicas on this machine; the scenarios run once for all."""

from typing import Any

import pytest
from integration.ray_cluster.scenario_programs import scenario

from coresched.core.ring import LoadBoundedRouter

pytestmark = pytest.mark.ray

SLOTS = ["slot-0", "slot-1", "slot-2"]
AT_REST = {"in_flight": 0, "waiting": 0}


@pytest.fixture(scope="module")
def found() -> Any:
    return scenario("serve_scenarios.py")


def lbch(labels: list[str]) -> list[int]:
    """The slots that the core's router chooses for requests that stay in flight."""
    ring = LoadBoundedRouter(SLOTS, 1.25)
    return [SLOTS.index(ring.route(label)) for label in labels]


def home(label: str) -> int:
    return SLOTS.index(LoadBoundedRouter(SLOTS).home(label))


@pytest.mark.parametrize("case", ["hot", "zipf", "uniform", "http key", "http session", "argument"])
def test_held_requests_go_where_lbch_sends_them(found: Any, case: str) -> None:
    split = found["splits"][case]
    assert split["ranks"] == lbch(split["labels"])


def test_a_hot_label_is_split_within_the_bound(found: Any) -> None:
    ranks = found["splits"]["hot"]["ranks"]
    assert sorted(map(ranks.count, range(3))) == [4, 13, 13]


def test_a_stream_is_in_flight_until_it_was_read_or_cancelled(found: Any) -> None:
    streams = found["streams"]
    assert streams["counted"] == 6
    assert streams["same"]
    assert streams["at rest"] == AT_REST


def test_a_client_that_leaves_is_in_flight_no_more(found: Any) -> None:
    split = found["streams"]["after leaving"]
    assert split["ranks"] == lbch(split["labels"])  # as with nothing in flight


def test_a_reserved_place_is_counted_until_it_is_given_up_or_its_request_ends(found: Any) -> None:
    assert found["reservations"] == {"counted": 1, "at rest": AT_REST}


def test_requests_that_wait_for_full_replicas_or_are_cancelled_leave_no_count(found: Any) -> None:
    narrow = found["narrow"]
    assert narrow["answered"] == 6 + 2
    assert narrow["at rest"] == AT_REST
    assert narrow["at random"]["cancelled"] > 0
    assert sum(narrow["at random"].values()) == 150
    assert narrow["at rest after"] == AT_REST


def test_calls_within_one_request_are_all_answered(found: Any) -> None:
    assert len(found["fan_out"]) == 12


def test_a_configuration_file_names_the_router_and_its_options(found: Any) -> None:
    answers = found["configuration_files"]
    assert answers["good"] == "now"
    assert answers["bad"].endswith("cannot be routed to: load_bound must be at least 1, got 0.5")


def test_a_killed_replica_fails_no_request_that_was_not_on_it(found: Any) -> None:
    assert found["killed"]["failures"] == []
    lost = found["killed"]["in flight"]
    assert lost["on it"] == lost["failed"] == 13
    assert lost["at rest"] == AT_REST


def test_only_labels_of_the_killed_replica_move_and_they_come_home_to_its_replacement(found: Any) -> None:
    killed = found["killed"]
    labels = [f"u{i}" for i in range(60)]
    assert killed["before"] == killed["after"] == [home(label) for label in labels]
    moved = [
        before for before, during in zip(killed["before"], killed["during"], strict=True) if before != during
    ]
    assert moved == [killed["slot"]] * killed["before"].count(killed["slot"])
    assert killed["others"]
    assert killed["at rest"] == AT_REST


def test_slots_are_the_ranks_again_after_a_change_of_scale(found: Any) -> None:
    assert found["scaled"] == {"to 2": True, "to 3": True}


def test_without_ranks_slots_are_chosen_by_id_until_there_are_ranks(found: Any) -> None:
    assert found["without_ranks"] == {"here": True, "again": True}
