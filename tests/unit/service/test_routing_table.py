"""The routing table: whose request ends when, and which steps are refused before anything changes."""

import gc
import weakref
from collections.abc import Callable

import pytest
from grpc import StatusCode

from coresched.core.ring import LoadBoundedRouter
from coresched.core.shares import LARGEST_SHARE
from coresched.service.refusal import RefusedError
from coresched.service.table import UNARY, Owner, RoutingTable


def table_of(*workers: str) -> RoutingTable:
    return RoutingTable(dict.fromkeys(workers, 1.0))


def route(table: RoutingTable, label: str, *, exclude: tuple[str, ...] = (), owner: Owner = UNARY) -> str:
    return table.route(label, exclude, owner=owner, request_id="r").worker


def in_flight(table: RoutingTable) -> dict[str, int]:
    return {name: entry.in_flight for name, entry in table.workers().items()}


def test_it_routes_as_the_router_does_also_with_exclude_and_weights() -> None:
    workers = {"w0": 1.0, "w1": 2.5, "w2": 0.5}
    table, router = RoutingTable(workers, load_bound=1.5, virtual_nodes=64), None
    router = LoadBoundedRouter(workers, load_bound=1.5, virtual_nodes=64)
    for n in range(300):
        exclude = ("w1",) if n % 7 == 0 else ()
        assert route(table, f"k{n % 40}", exclude=exclude) == router.route(f"k{n % 40}", exclude)
    assert in_flight(table) == router.loads()
    assert (table.load_bound, table.virtual_nodes) == (1.5, 64)


def test_a_removed_worker_stays_until_its_last_request_ends_and_resumes_with_them_if_registered() -> None:
    table = table_of("w0")
    for _ in range(2):
        route(table, "k")
    assert table.remove("w0") == 2
    assert not table.workers()["w0"].routable
    table.release("k", "w0", owner=UNARY)
    table.register("w0", 3.0)
    entry = table.workers()["w0"]
    assert (entry.routable, entry.weight, entry.in_flight) == (True, 3.0, 1)
    assert table.remove("w0") == 1
    table.release("k", "w0", owner=UNARY)
    assert table.workers() == {}
    table.register("w0", 1.0)
    assert table.remove("w0") == 0
    assert table.workers() == {}


def test_release_all_ends_the_requests_of_one_owner_only() -> None:
    table, one, other = table_of("w0", "w1"), Owner(), Owner()
    for owner in (one, one, other, UNARY):
        route(table, "k", owner=owner)
    assert [flight.owner for flight in table.release_all(one)] == [one, one]
    assert sum(in_flight(table).values()) == 2
    assert table.release_all(one) == []
    assert table.release_all(Owner()) == []


def test_nothing_is_kept_of_a_stream_that_ended() -> None:
    table, owner = table_of("w0"), Owner()
    route(table, "k", owner=owner)
    table.release_all(owner)
    ended = weakref.ref(owner)
    del owner
    gc.collect()
    assert ended() is None


def test_a_request_handed_over_ends_with_its_new_owner() -> None:
    table, one, other = table_of("w0"), Owner(), Owner()
    flight = table.route("k", (), owner=one, request_id="r")
    table.hand_over(flight, other)
    assert table.release_all(one) == []
    table.release("k", "w0", owner=other)
    table.hand_over(flight, one)
    assert table.release_all(one) == []
    assert in_flight(table) == {"w0": 0}


REFUSED: list[tuple[str, Callable[[RoutingTable], object], StatusCode, str]] = [
    ("empty label", lambda t: route(t, ""), StatusCode.INVALID_ARGUMENT, "label"),
    ("long label", lambda t: route(t, "é" * 257), StatusCode.INVALID_ARGUMENT, "label"),
    ("unknown exclude", lambda t: route(t, "k", exclude=("w9",)), StatusCode.NOT_FOUND, "exclude"),
    (
        "all excluded",
        lambda t: route(t, "k", exclude=("w1", "w0")),
        StatusCode.FAILED_PRECONDITION,
        "exclude",
    ),
    ("register again", lambda t: t.register("w0", 2.0), StatusCode.ALREADY_EXISTS, "worker"),
    ("register nameless", lambda t: t.register("", 1.0), StatusCode.INVALID_ARGUMENT, "worker"),
    ("weight 0", lambda t: t.register("w2", 0.0), StatusCode.INVALID_ARGUMENT, "weight"),
    ("weight NaN", lambda t: t.register("w2", float("nan")), StatusCode.INVALID_ARGUMENT, "weight"),
    ("weight 1001", lambda t: t.register("w2", 1001.0), StatusCode.INVALID_ARGUMENT, "weight"),
    ("remove unknown", lambda t: t.remove("w9"), StatusCode.NOT_FOUND, "worker"),
    ("remove nameless", lambda t: t.remove(""), StatusCode.INVALID_ARGUMENT, "worker"),
    ("release unknown", lambda t: t.release("k", "w9", owner=UNARY), StatusCode.NOT_FOUND, "worker"),
    ("release idle", lambda t: t.release("k", "w1", owner=UNARY), StatusCode.FAILED_PRECONDITION, "worker"),
    ("release other label", lambda t: t.release("q", "w0", owner=UNARY), StatusCode.NOT_FOUND, "label"),
    ("release of a stream", lambda t: t.release("k", "w0", owner=Owner()), StatusCode.NOT_FOUND, "label"),
    ("release nameless", lambda t: t.release("k", "", owner=UNARY), StatusCode.INVALID_ARGUMENT, "worker"),
]


@pytest.mark.parametrize(
    ("step", "code", "field"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_a_refused_step_names_its_field_and_changes_nothing(
    step: Callable[[RoutingTable], object], code: StatusCode, field: str
) -> None:
    table = table_of("w0", "w1")
    route(table, "k", exclude=("w1",))
    with pytest.raises(RefusedError) as refused:
        step(table)
    assert (refused.value.code, refused.value.field) == (code, field)
    assert refused.value.message.startswith(f"{field} ") or code is StatusCode.FAILED_PRECONDITION
    assert {name: (e.weight, e.in_flight, e.routable) for name, e in table.workers().items()} == {
        "w0": (1.0, 1, True),
        "w1": (1.0, 0, True),
    }
    table.release("k", "w0", owner=UNARY)


@pytest.mark.parametrize("exclude", [(), ("w0",)])
def test_without_a_routable_worker_nothing_is_routed(exclude: tuple[str, ...]) -> None:
    table = table_of("w0")
    route(table, "k")
    table.remove("w0")
    with pytest.raises(RefusedError) as refused:
        route(table, "k", exclude=exclude)
    assert (refused.value.code, refused.value.field) == (StatusCode.FAILED_PRECONDITION, "")
    assert in_flight(table) == {"w0": 1}


def test_one_registration_cannot_fill_the_ring() -> None:
    table = RoutingTable({}, virtual_nodes=65536)
    with pytest.raises(RefusedError, match="weight must be at most 16 with 65536 virtual nodes, got 17"):
        table.register("w0", 17.0)
    assert LARGEST_SHARE == 16 * 65536
    assert table.workers() == {}


def test_what_was_in_flight_before_a_restart_counts_again_where_it_was() -> None:
    table = table_of("w0", "w1")
    owner = Owner()
    restored = table.restore("k", "w1", owner=owner, request_id="r")
    assert restored is not None
    assert in_flight(table) == {"w0": 0, "w1": 1}
    assert table.restore("k", "w9", owner=owner, request_id="r") is None
    table.remove("w1")
    again = table.restore("q", "w1", owner=owner, request_id="r")
    assert again is not None
    assert in_flight(table) == {"w0": 0, "w1": 2}
    table.end(restored)
    table.end(restored)
    assert in_flight(table) == {"w0": 0, "w1": 1}
    table.release("q", "w1", owner=owner)
    assert in_flight(table) == {"w0": 0}


def test_labels_stay_where_they_were_served_with_sticky_bounded_also_after_a_restart() -> None:
    table = RoutingTable({"w0": 1.0, "w1": 1.0}, router="sticky-bounded")
    owner = Owner()
    flights = [table.restore(label, "w1", owner=owner, request_id="r") for label in ("k", "q")]
    assert [route(table, label) for label in ("new", "newer")] == ["w0", "w0"]
    for flight in flights:
        assert flight is not None
        table.end(flight)
    assert route(table, "k") == "w1"
    assert table.workers()["w1"].spilled == 0
    table.drain("w1")
    assert route(table, "q") == "w0"
    assert [entry.spilled for entry in table.workers().values()] == [0, 0]


def test_a_label_that_moves_is_counted_where_it_was() -> None:
    table = RoutingTable({"w0": 1.0, "w1": 1.0}, router="sticky-bounded", load_bound=1.0)
    assert [route(table, "k") for _ in range(3)] == ["w0", "w0", "w1"]
    assert [entry.spilled for entry in table.workers().values()] == [1, 0]
