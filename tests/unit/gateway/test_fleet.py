"""Which worker takes a request, who is out, and what is counted."""

import pytest

from coresched.core.ring import LoadBoundedRouter
from coresched.errors import InputError
from coresched.gateway.fleet import Fleet, NoWorkerError
from coresched.gateway.workers import Worker, checked_workers, worker_at

NAMES = ["http://a:1", "http://b:1", "http://c:1"]
LABELS = [f"traj-{n}" for n in range(300)]


def homes(fleet: Fleet) -> dict[str, str]:
    found = {}
    for label in LABELS:
        worker = fleet.route(label)
        fleet.release(worker)
        found[label] = worker.name
    return found


async def test_only_the_labels_of_a_worker_that_is_out_move_and_come_back() -> None:
    said: list[str] = []
    fleet = Fleet([Worker(name) for name in NAMES], notify=lambda worker, line: said.append(line))
    before = homes(fleet)
    fleet.unreachable(fleet.workers[1], "refused")
    during = homes(fleet)
    assert {label for label in LABELS if during[label] != before[label]} == {
        label for label in LABELS if before[label] == NAMES[1]
    }
    assert NAMES[1] not in during.values()
    fleet.workers[1].recheck.clear()
    fleet.check_passed(fleet.workers[1])
    assert homes(fleet) == before
    assert said == ["worker http://b:1 is out: refused", "worker http://b:1 is back: it is healthy"]


async def test_sticky_bounded_begins_on_the_least_loaded_and_stays_where_a_failure_sent_it() -> None:
    fleet = Fleet([Worker(name) for name in NAMES], router="sticky-bounded")
    began = [fleet.route(f"traj-{number}") for number in range(3)]
    assert [worker.name for worker in began] == NAMES
    for worker in began:
        fleet.release(worker)
    fleet.unreachable(fleet.workers[1], "refused")
    moved = fleet.route("traj-1")
    fleet.release(moved)
    assert moved is not fleet.workers[1]
    assert fleet.workers[1].spilled == 1
    fleet.workers[1].recheck.clear()
    fleet.check_passed(fleet.workers[1])
    assert fleet.route("traj-1") is moved
    assert fleet.in_flight()[moved.name] == moved.in_flight == 1
    assert sum(worker.spilled for worker in fleet.workers) == 1


async def test_routes_are_those_of_the_ring_and_counted() -> None:
    fleet = Fleet([Worker(NAMES[0]), Worker(NAMES[1], 2.5)], load_bound=1.5, virtual_nodes=64)
    routed: list[tuple[str, str]] = []
    fleet.on_route = lambda label, worker: routed.append((label, worker))
    ring = LoadBoundedRouter({NAMES[0]: 1.0, NAMES[1]: 2.5}, 1.5, 64)
    assert [fleet.route(label).name for label in LABELS] == [ring.route(label) for label in LABELS]
    assert [label for label, _ in routed] == LABELS
    assert fleet.in_flight() == ring.loads()
    assert {worker.name: worker.requests for worker in fleet.workers} == ring.loads()


async def test_a_retry_goes_elsewhere_and_fails_when_there_is_no_elsewhere() -> None:
    fleet = Fleet([Worker(name) for name in NAMES[:2]])
    first = fleet.route("k")
    second = fleet.route("k", [first])
    assert second is not first
    assert (first.retries, second.retries) == (0, 1)
    fleet.unreachable(second, "refused")
    with pytest.raises(NoWorkerError):
        fleet.route("k", [first])
    assert fleet.first() is first
    with pytest.raises(NoWorkerError):
        fleet.first([first])
    assert sum(fleet.in_flight().values()) == 2


async def test_failures_count_in_a_row() -> None:
    fleet = Fleet([Worker(name) for name in NAMES], failures_to_out=3)
    worker = fleet.workers[0]
    for _ in range(2):
        fleet.check_failed(worker, "late")
    fleet.check_passed(worker)
    fleet.check_failed(worker, "late")
    fleet.reset(worker, "reset")
    assert worker.healthy
    fleet.check_passed(worker)  # that check began before the reset
    fleet.interrupted(worker)
    assert worker.healthy
    fleet.check_failed(worker, "late")
    assert not worker.healthy
    assert (worker.failures, fleet.healthy()) == (2, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not begin with http:// or https://"),
        ("127.0.0.1:30000", "must be a base URL"),
        ("ftp://w", "does not begin with http:// or https://"),
        ("http://", "has no host"),
        ("http://:80", "must be a base URL"),
        ("http://w:0", "port 0"),
        ("http://w:65536", "must be a base URL"),
        ("http://w:x", "must be a base URL"),
        ("http://u:p@w", "must not hold a user or password"),
        ("http://w/?q=1", "has a query or a fragment"),
        ("http://w/#f", "has a query or a fragment"),
        ("http://w/a b", "other characters"),
        ("http://wörker", "other characters"),
        ("http://w\r\nX: y", "other characters"),
        ("http://[::1", "must be a base URL"),
    ],
)
def test_what_is_no_worker_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match="--worker must") as refused:
        worker_at(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert ":p@" not in str(refused.value)


def test_a_worker_is_where_its_url_says() -> None:
    assert worker_at("http://w:30000/").name == "http://w:30000"
    assert str(worker_at("https://w/engine/").url("/health")) == "https://w/engine/health"
    named = {name: worker_at(name) for name in ("https://w/engine/", "http://w:80", "http://[::1]:7")}
    assert [(worker.authority, worker.prefix) for worker in named.values()] == [
        ("w", "/engine"),
        ("w", ""),
        ("[::1]:7", ""),
    ]


def test_a_worker_is_named_once() -> None:
    with pytest.raises(InputError, match="at least once"):
        checked_workers([])
    with pytest.raises(InputError, match="name each worker once, got 'http://W:80' again"):
        checked_workers([worker_at("http://w"), worker_at("http://x"), worker_at("http://W:80/")])
