"""A batch goes on whatever becomes of its coordinator's actor, in a real Ray on this machine."""

from collections import Counter
from typing import Any

import pytest
from integration.ray_cluster.scenario_runs import run_scenarios

SAMPLES, TURNS, ENVIRONMENT_CONCURRENCY = 500, 2, 6

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_scenarios("coordinator_scenarios.py", tmp_path_factory.mktemp("coordinator"))


@pytest.fixture(scope="module")
def killed(results: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = results["killed_often"]
    return found


def most_at_once(intervals: list[tuple[float, float]]) -> int:
    steps = sorted([(began, 1) for began, _ in intervals] + [(ended, -1) for _, ended in intervals])
    now = most = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def test_the_coordinator_was_killed_in_the_midst_of_the_batch(killed: dict[str, Any]) -> None:
    assert killed["lives"] == len(killed["kills"]) == 7
    assert {how for how, _ in killed["kills"]} == {"ray.kill", "SIGKILL"}
    assert all(0 < finished < SAMPLES for _, finished in killed["kills"])


def test_nothing_is_lost_or_doubled(killed: dict[str, Any]) -> None:
    totals = killed["totals"]
    assert (totals["samples"], totals["finished"], totals["readmissions"]) == (SAMPLES, SAMPLES, 0)
    assert (totals["turns"], totals["environment_stages"]) == (SAMPLES * TURNS, SAMPLES * TURNS)
    assert killed["samples"]
    assert killed["states"] == ["finished"]
    done = Counter((sample, turn) for sample, turn, _, _ in killed["stages"])
    assert done == Counter((f"s{number}", turn) for number in range(SAMPLES) for turn in range(TURNS))


def test_the_environment_slots_are_never_exceeded_and_all_free_in_the_end(killed: dict[str, Any]) -> None:
    intervals = [(began, ended) for _, _, began, ended in killed["stages"]]
    assert most_at_once(intervals) == ENVIRONMENT_CONCURRENCY
    totals = killed["totals"]
    assert [totals[state] for state in ("waiting", "admitted", "environment_queued")] == [0, 0, 0]
    assert (totals["environment_running"], totals["withdrawn"]) == (0, 0)


def test_another_batch_runs_beside_it_in_threads(killed: dict[str, Any]) -> None:
    assert killed["other"] == [60, 60, 2]


def test_other_limits_are_refused(killed: dict[str, Any]) -> None:
    assert killed["wrong limits"].startswith("ValueError: options")
    assert "sample_concurrency" in killed["wrong limits"]


def test_it_is_found_with_its_own_terms_only(killed: dict[str, Any]) -> None:
    assert killed["found"] == "none"
    assert killed["wrong terms"] == (
        "InputError: workers must be {'w0': 1.0, 'w1': 1.0}, as of the coordinator 'main' that is there, got "
        "{'w0': 1.0}; give the same, stop that one, or choose another name"
    )


def test_samples_of_a_killed_driver_go_to_another(results: dict[str, Any]) -> None:
    totals = results["driver_killed"]["totals"]
    assert results["driver_killed"]["first"] == "ActorDiedError"
    assert (totals["samples"], totals["finished"]) == (60, 60)
    assert 1 <= totals["readmissions"] <= 8
    assert totals["admitted"] == totals["environment_running"] == totals["waiting"] == 0


def test_one_that_is_stopped_and_started_anew_goes_on_under_its_client(results: dict[str, Any]) -> None:
    assert results["started_anew"].pop("absent").startswith("InputError: there is no coordinator 'moved'")
    assert results["started_anew"] == {"finished": 2, "worker": "w0"}


def test_mistakes_are_named_with_their_fix(results: dict[str, Any]) -> None:
    nobody = (
        "InputError: there is no coordinator 'nobody' in Ray's namespace 'scenarios'; start it with "
        "coresched_ray.start_coordinator('nobody', ...)"
    )
    assert results["before Ray"] == (
        "ConnectionError: this process is not connected to Ray; call ray.init(address=...) first"
    )
    mistakes = results["mistakes"]
    assert mistakes["absent"] == mistakes["stop"] == nobody
    assert mistakes["other namespace"] == (
        "InputError: there is no coordinator 'elsewhere' in Ray's namespace 'scenarios'; give "
        "namespace='training', where there is one of that name"
    )
    assert mistakes["its namespace"] == "none"
    assert mistakes["bad option"] == "ValueError: sample_concurrency must be at least 1, got 0"
    assert mistakes["workers"] == (
        "TypeError: workers must be given to the coordinator, by start_coordinator(workers=...), not to "
        "connect; leave it out"
    )
    assert mistakes["journal's type"] == "TypeError: journal must be the name of a file or None, got 3"
    assert mistakes["journal"] == (
        "InputError: coordinator 'bad' cannot start: journal '/nowhere/at-all/journal' is in "
        "'/nowhere/at-all', which is no directory; create it first"
    )
    assert mistakes["held"].startswith("InputError: coordinator 'bad' cannot start: journal '")
    assert mistakes["held"].endswith(
        "held.sqlite3' is in use by another coordinator or coresched serve; stop that one or give another "
        "journal"
    )
    assert mistakes["load bound"] == "ValueError: load_bound must be at least 1, got 0.5"


def test_another_actor_of_that_name_is_left_alone(results: dict[str, Any]) -> None:
    mistakes = results["mistakes"]
    for asked in ("start another's", "connect to another's", "stop another's"):
        assert mistakes[asked] == "InputError: the actor 'foreign' is no coordinator; give another name"
    assert mistakes["another's lives"]


def test_after_ray_was_shut_down_none_is_started_and_no_other_cluster_joined(results: dict[str, Any]) -> None:
    after = results["after_shutdown"]
    assert after.pop("connected") is False
    assert set(after.values()) == {results["before Ray"]}


def test_who_has_not_asked_ray_is_refused_at_the_port(results: dict[str, Any]) -> None:
    refused = results["in_the_clear"]
    assert refused["no TLS"].startswith("SessionLostError")
    assert refused["no token"].startswith("ServiceError: metadata authorization")
    assert refused["wrong token"].startswith("ServiceError: metadata authorization")
    assert refused["all of it"] == "none"
