"""LBCH: hand-computed routes, held by the compiled router and its twin alike."""

import copy
import doctest
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import mmh3
import pytest

import coresched.core.ring
from coresched.core import LoadBoundedRouter
from coresched.core.reference import ReferenceRouter

LABELS = [f"traj-{i}" for i in range(400)]


@pytest.fixture(params=[LoadBoundedRouter, ReferenceRouter], ids=["compiled", "twin"])
def router_class(request: pytest.FixtureRequest) -> Any:
    return request.param


def clockwise(label: str, points_of: Mapping[str, int]) -> list[str]:
    """Each worker once from the label on, from the documented positions and nothing else."""
    start = mmh3.hash128(label, seed=1, x64arch=True) % 2**64
    ring = [
        ((mmh3.hash128(f"{worker}#{i}", seed=0, x64arch=True) % 2**64 - start) % 2**64, worker)
        for worker, points in points_of.items()
        for i in range(points)
    ]
    return list(dict.fromkeys(worker for _, worker in sorted(ring)))


def label_at(router: Any, worker: str) -> str:
    return next(label for label in LABELS if router.home(label) == worker)


def load(router: Any, worker: str, requests: int) -> None:
    """Put requests in flight on this very worker, whatever the bound."""
    others = set(router.workers()) - {worker}
    for _ in range(requests):
        assert router.route("any", exclude=others) == worker


def test_the_bound_counts_the_request_now_placed(router_class: Any) -> None:
    # alpha 1, W 2: L * 2 <= L_tot + 1. Without the + 1 the second request would leave home: 2 <= 1.
    router = router_class(["w0", "w1"], load_bound=1)
    label = label_at(router, "w1")
    routed = [router.route(label) for _ in range(7)]
    assert routed == ["w1", "w1", "w0", "w1", "w0", "w1", "w0"]
    assert router.loads() == {"w0": 3, "w1": 4}


def test_the_paper_bound_of_1_25_over_two_workers(router_class: Any) -> None:
    # L * 2 <= 1.25 (L_tot + 1): 0 <= 1.25, 2 <= 2.5, 4 > 3.75; 4 <= 5, 6 <= 6.25,
    # 8 > 7.5; 8 <= 8.75, 10 <= 10, 12 > 11.25.
    router = router_class(["w0", "w1"], load_bound=1.25)
    label = label_at(router, "w0")
    routed = "".join(router.route(label)[1] for _ in range(9))
    assert routed == "001001001"


def test_the_default_bound_is_1_25_and_128_virtual_nodes(router_class: Any) -> None:
    router = router_class(["w0", "w1"])
    assert (router.load_bound, router.virtual_nodes) == (1.25, 128)


@pytest.mark.parametrize(("slack", "stay"), [(0, 2), (1, 3), (2, 5)])
def test_slack_is_requests_beyond_the_share_of_any_weight(router_class: Any, slack: int, stay: int) -> None:
    router = router_class({"w0": 1.0, "w1": 3.0}, load_bound=1.0, slack=slack)
    label = label_at(router, "w0")
    load(router, "w1", 3)
    # With L on w0 its share is (3 + L + 1) / 4, so that L may be at most 4 (1 + slack) / 3.
    routed = [router.route(label) for _ in range(stay + 1)]
    assert routed == ["w0"] * stay + ["w1"]


@pytest.mark.parametrize(
    ("slack", "error", "message"),
    [
        (-1, ValueError, "slack must be at least 0, got -1"),
        (1_000_001, ValueError, "slack must be at most 1000000, got 1000001"),
        (1.5, TypeError, "slack must be an int, got 1.5 of type float"),
    ],
)
def test_a_slack_that_is_no_number_of_requests_is_refused(
    router_class: Any, slack: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        router_class(["w0"], slack=slack)


@pytest.mark.parametrize(("load_bound", "stays"), [(1.15, True), (1.1499999999999997, False), (1.14, False)])
def test_the_bound_is_compared_as_the_decimal_number_it_was_written_as(
    router_class: Any, load_bound: float, stays: bool
) -> None:
    # 23 * 5 = 115 = 1.15 * 100; as doubles the product is 114.99999999999999, and 1.15 is below 115 / 100.
    assert 23 * 5 > 1.15 * 100
    router = router_class([f"w{i}" for i in range(5)], load_bound=load_bound)
    label = label_at(router, "w2")
    load(router, "w2", 23)
    for worker in ("w0", "w1", "w3", "w4"):
        load(router, worker, 19)
    assert sum(router.loads().values()) == 99
    assert (router.route(label) == "w2") is stays


@pytest.mark.parametrize(
    "tiny",
    [1e-17, 1e-25],
    ids=["products beyond 64 bits", "terms beyond 63 bits"],
)
def test_a_share_smaller_by_less_than_a_double_can_hold_is_told_apart(router_class: Any, tiny: float) -> None:
    # 23 (5 + tiny) > 115 = 1.15 * 100: with a worker of tiny weight home is not eligible, without it it is.
    assert 23 * (5 + tiny) == 115
    router = router_class({**{f"w{i}": 1.0 for i in range(5)}, "tiny": tiny}, load_bound=1.15)
    label = label_at(router, "w2")
    load(router, "w2", 23)
    for worker in ("w0", "w1", "w3", "w4"):
        load(router, worker, 19)
    away = router.route(label)
    assert away != "w2"
    router.release(away)
    router.remove_worker("tiny")
    assert router.route(label) == "w2"


def test_weights_share_the_bound(router_class: Any) -> None:
    # alpha 1, weights 3 and 1: L(heavy) * 4 <= 3 (L_tot + 1). 12 <= 12, 16 > 15; 24 <= 24, 28 > 27.
    router = router_class({"heavy": 3, "light": 1}, load_bound=1)
    label = label_at(router, "heavy")
    routed = [router.route(label) for _ in range(9)]
    assert routed == ["heavy"] * 4 + ["light"] + ["heavy"] * 3 + ["light"]


def test_weights_written_as_decimals_add_up_exactly(router_class: Any) -> None:
    # 0.1 + 0.2 = 0.3: L * 0.6 <= 0.3 (L_tot + 1), so L 1 of 1 stays: 0.6 <= 0.6.
    router = router_class({"a": 0.1, "b": 0.2, "c": 0.3}, load_bound=1)
    label = label_at(router, "c")
    assert [router.route(label), router.route(label)] == ["c", "c"]
    assert router.route(label) != "c"  # 1.2 > 0.9


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_home_is_the_first_worker_clockwise(router_class: Any, workers: int) -> None:
    names = [f"w{i}" for i in range(workers)]
    router = router_class(names, virtual_nodes=16)
    for label in LABELS[:100]:
        assert router.home(label) == clockwise(label, dict.fromkeys(names, 16))[0]


def test_points_are_in_proportion_to_the_weight_and_at_least_one(router_class: Any) -> None:
    router = router_class({"a": 0.001, "b": 0.5, "c": 1.3, "d": 1}, virtual_nodes=10)
    for label in LABELS:
        assert router.home(label) == clockwise(label, {"a": 1, "b": 5, "c": 13, "d": 10})[0]


def test_the_number_of_points_is_rounded_from_the_written_weight(router_class: Any) -> None:
    # 75 * 0.14 is 10.5, so 10 to even; as doubles it is 10.500000000000002, so 11.
    assert round(75 * 0.14) == 11
    router = router_class({"a": 0.14, "b": 0.04}, virtual_nodes=75)
    homes = [router.home(label) for label in LABELS]
    assert homes == [clockwise(label, {"a": 10, "b": 3})[0] for label in LABELS]
    assert homes != [clockwise(label, {"a": 11, "b": 3})[0] for label in LABELS]


def test_the_walk_tries_each_distinct_worker_once_in_ring_order(router_class: Any) -> None:
    names = ["w0", "w1", "w2", "w3"]
    for label in LABELS[:60]:
        first, second, third, fourth = clockwise(label, dict.fromkeys(names, 128))
        router = router_class(names, load_bound=1)
        load(router, first, 2)  # 2 * 4 > 3
        assert router.route(label) == second
        load(router, second, 1)  # 2 * 4 > 5, for both
        assert router.route(label) == third
        load(router, third, 1)  # 2 * 4 > 7, for all three
        assert router.route(label) == fourth


def test_an_excluded_worker_is_skipped_and_the_bound_stays_that_of_all(router_class: Any) -> None:
    names = ["w0", "w1", "w2"]
    for label in LABELS[:20]:
        first, second, third = clockwise(label, dict.fromkeys(names, 128))
        router = router_class(names, load_bound=1)
        assert router.route(label, exclude=[first]) == second
        assert (
            router.route(label, exclude={first}) == third
        )  # 1 * 3 > 2; over two workers 1 * 2 <= 2 would stay
        router = router_class(names, load_bound=1)
        load(router, second, 1)
        load(router, first, 1)
        assert router.route(label, exclude=(name for name in [first])) == second  # 1 * 3 <= 3
        assert router.route(label, exclude=[first]) == third  # 2 * 3 > 4
        assert router.loads() == {first: 1, second: 2, third: 1}


def test_without_an_eligible_worker_the_first_not_excluded_takes_the_request(router_class: Any) -> None:
    names = ["w0", "w1", "w2"]
    for label in LABELS[:60]:
        router = router_class(names, load_bound=1)
        load(router, "w1", 2)
        load(router, "w2", 2)  # 2 * 3 > 5: only w0 is eligible, and it is excluded
        left = [name for name in clockwise(label, dict.fromkeys(names, 128)) if name != "w0"]
        assert router.route(label, exclude=["w0"]) == left[0]
        assert router.loads()[left[0]] == 3


def test_excluding_nobody_is_as_if_not_said(router_class: Any) -> None:
    router = router_class(["w0", "w1"])
    for label in LABELS[:20]:
        assert router.route(label, exclude=[]) == router.home(label)
        router.release(router.home(label))


def test_routes_and_releases_add_up(router_class: Any) -> None:
    router = router_class(["w0", "w1", "w2"])
    routed = [router.route(label) for label in LABELS]
    assert router.loads() == {name: routed.count(name) for name in ("w0", "w1", "w2")}
    assert max(router.loads().values()) <= 1.25 * 400 / 3 + 1
    for worker in routed:
        router.release(worker)
    assert router.loads() == {"w0": 0, "w1": 0, "w2": 0}


def test_home_counts_nothing(router_class: Any) -> None:
    router = router_class(["w0", "w1"])
    for label in LABELS:
        router.home(label)
    assert router.loads() == {"w0": 0, "w1": 0}


def test_loads_and_workers_are_in_order_of_addition(router_class: Any) -> None:
    router = router_class(["c", "a", "b"])
    router.add_worker("0")
    router.remove_worker("a")
    router.add_worker("a")
    assert router.workers() == ["c", "b", "0", "a"]
    assert list(router.loads()) == ["c", "b", "0", "a"]


def test_a_removed_worker_leaves_the_ring_and_the_totals_at_once(router_class: Any) -> None:
    router = router_class(["w0", "w1", "w2"], load_bound=1)
    label = label_at(router, "w1")
    load(router, "w0", 50)
    router.remove_worker("w0")
    assert router.loads() == {"w1": 0, "w2": 0}
    assert "w0" not in [router.home(other) for other in LABELS]
    # W 2 and L_tot without the 50: L * 2 <= L_tot + 1 as in the first test.
    assert [router.route(label) for _ in range(5)] == ["w1", "w1", "w2", "w1", "w2"]


def test_requests_of_a_removed_worker_are_released_exactly_once_each(router_class: Any) -> None:
    router = router_class(["w0", "w1"])
    load(router, "w0", 2)
    router.remove_worker("w0")
    router.release("w0")
    router.release("w0")
    with pytest.raises(LookupError):
        router.release("w0")
    assert router.loads() == {"w1": 0}


def test_a_worker_added_again_resumes_with_what_is_in_flight(router_class: Any) -> None:
    router = router_class(["w0", "w1"], load_bound=1)
    label = label_at(router, "w0")
    load(router, "w0", 3)
    router.remove_worker("w0")
    router.release("w0")
    router.add_worker("w0")
    assert router.loads() == {"w1": 0, "w0": 2}
    assert router.route(label) == "w1"  # 2 * 2 > 3
    router.release("w0")
    router.release("w0")
    with pytest.raises(RuntimeError):
        router.release("w0")
    assert router.loads() == {"w1": 1, "w0": 0}


def test_a_worker_may_come_back_with_another_weight(router_class: Any) -> None:
    router = router_class({"w0": 1, "w1": 1}, load_bound=1)
    router.remove_worker("w0")
    router.add_worker("w0", weight=3)
    label = label_at(router, "w0")
    assert [router.route(label) for _ in range(5)] == ["w0"] * 4 + ["w1"]


def test_many_workers_may_come_and_go(router_class: Any) -> None:
    router = router_class([], virtual_nodes=2)
    for i in range(300):
        router.add_worker(f"pod-{i}")
        load(router, f"pod-{i}", 2)
        if i >= 2:
            router.release(f"pod-{i - 2}")  # its last: it was removed a round ago
        if i >= 1:
            router.release(f"pod-{i - 1}")
            router.remove_worker(f"pod-{i - 1}")
    assert router.loads() == {"pod-299": 2}
    router.release("pod-298")
    with pytest.raises(LookupError):
        router.release("pod-298")


def test_the_order_of_addition_does_not_matter(router_class: Any) -> None:
    weights = {"a": 1.0, "b": 0.4, "c": 2.0}
    expected = [router_class(weights).home(label) for label in LABELS]
    for names in itertools.permutations(weights):
        router = router_class([])
        for name in names:
            router.add_worker(name, weights[name])
        assert [router.home(label) for label in LABELS] == expected


def test_homes_are_pinned() -> None:
    """Golden values: a change here moves every trajectory of every user to another worker."""
    router = LoadBoundedRouter(["w0", "w1", "w2"])
    assert "".join(router.home(f"traj-{i}")[1] for i in range(24)) == "122011122122100011001221"
    weighted = LoadBoundedRouter({"gpu-a": 1.0, "gpu-b": 2.5, "gpu-ü": 0.5}, virtual_nodes=64)
    assert "".join(weighted.home(f"{i}")[4] for i in range(24)) == "übübüaüübbbaüübaabbbbbab"
    assert Counter(router.home(f"traj-{i}") for i in range(3000)) == Counter(w0=1061, w1=956, w2=983)


@pytest.mark.parametrize("label", ["x" * 512, "é" * 256, "\U0001f600" * 128, "nul\0", "日本"])
def test_labels_of_512_bytes_and_any_text_are_routed(router_class: Any, label: str) -> None:
    router = router_class(["w0", "w1", "w2"])
    assert router.route(label) == clockwise(label, dict.fromkeys(["w0", "w1", "w2"], 128))[0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: LoadBoundedRouter("w0"), TypeError, "^workers must be names or a mapping"),
        (lambda: LoadBoundedRouter(["w0", "w0"]), ValueError, "added once only, got 'w0' again"),
        (lambda: LoadBoundedRouter([""]), ValueError, "^worker must not be empty"),
        (lambda: LoadBoundedRouter([7]), TypeError, "^worker must be a str, got 7"),  # type: ignore[list-item]
        (lambda: LoadBoundedRouter({"w0": 0.0}), ValueError, "^weight of 'w0' must be above 0, got 0.0"),
        (lambda: LoadBoundedRouter({"w0": -1}), ValueError, "^weight of 'w0' must be above 0, got -1"),
        (lambda: LoadBoundedRouter({"w0": math.nan}), ValueError, "^weight of 'w0' must be a finite"),
        (
            lambda: LoadBoundedRouter({"w0": 1000.5}),
            ValueError,
            "^weight of 'w0' must be at most 1000, got 1000.5",
        ),
        (lambda: LoadBoundedRouter({"w0": True}), TypeError, "^weight of 'w0' must be an int or a float"),
        (
            lambda: LoadBoundedRouter([], load_bound=0.999),
            ValueError,
            "^load_bound must be at least 1, got 0.999",
        ),
        (lambda: LoadBoundedRouter([], load_bound=math.inf), ValueError, "^load_bound must be a finite"),
        (lambda: LoadBoundedRouter([], load_bound="2"), TypeError, "^load_bound must be"),  # type: ignore[arg-type]
        (
            lambda: LoadBoundedRouter([], virtual_nodes=0),
            ValueError,
            "^virtual_nodes must be at least 1, got 0",
        ),
        (
            lambda: LoadBoundedRouter([], virtual_nodes=65537),
            ValueError,
            "^virtual_nodes must be at most 65536",
        ),
        (lambda: LoadBoundedRouter([], virtual_nodes=1.5), TypeError, "^virtual_nodes"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_setting_is_named(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda r: r.route(""), ValueError, "^label must not be empty"),
        (lambda r: r.route("x" * 513), ValueError, "^label must be at most 512 bytes"),
        (lambda r: r.route(None), TypeError, "^label must be a str, got None"),
        (lambda r: r.home("a\ud800"), ValueError, "^label must be text"),
        (lambda r: r.route("k", exclude="w0"), TypeError, "^exclude must be a collection"),
        (lambda r: r.route("k", exclude=["w0", "w9"]), LookupError, "^exclude must be among .*, got 'w9'"),
        (lambda r: r.route("k", exclude=["w0", "w1"]), LookupError, "^exclude must leave one of the workers"),
        (lambda r: r.release("w9"), LookupError, "^worker must be among the workers .*, got 'w9'"),
        (lambda r: r.release("w0"), RuntimeError, "^worker 'w0' has no request in flight"),
        (lambda r: r.add_worker("w1"), ValueError, "added once only, got 'w1' again"),
        (lambda r: r.add_worker(""), ValueError, "^name must not be empty"),
        (lambda r: r.add_worker("w2", 1001), ValueError, "^weight must be at most 1000, got 1001"),
        (lambda r: r.add_worker("w2", math.inf), ValueError, "^weight must be a finite number, got inf"),
        (lambda r: r.remove_worker("w9"), LookupError, "^name must be one of the workers .*, got 'w9'"),
    ],
)
def test_a_refused_call_says_why_and_changes_nothing(
    call: Callable[[Any], object], error: type[Exception], message: str
) -> None:
    router = LoadBoundedRouter(["w0", "w1"])
    homes = [router.home(label) for label in LABELS]
    with pytest.raises(error, match=message):
        call(router)
    assert router.loads() == {"w0": 0, "w1": 0}
    assert [router.home(label) for label in LABELS] == homes


def test_without_workers_nothing_can_be_routed(router_class: Any) -> None:
    router = router_class(["w0"])
    router.route("k")
    router.remove_worker("w0")
    for call in (router.route, router.home):
        with pytest.raises(LookupError):
            call("k")
    with pytest.raises(LookupError):
        router.route("k", exclude=["w0"])
    router.release("w0")
    with pytest.raises(LookupError):
        router.remove_worker("w0")


def test_a_router_refuses_to_be_copied() -> None:
    with pytest.raises(TypeError):
        copy.deepcopy(LoadBoundedRouter(["w0"]))


def test_the_documented_example_holds() -> None:
    result = doctest.testmod(coresched.core.ring)
    assert result.attempted > 0
    assert result.failed == 0
