"""Labels stay where they were served last, within the load bound."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.core import LoadBoundedRouter, StickyBoundedRouter
from coresched.core.routers import make_router


def test_the_first_request_goes_to_the_least_loaded_and_the_next_ones_follow() -> None:
    router = StickyBoundedRouter(["a", "b", "c"])
    assert [router.route(f"t{number}") for number in range(3)] == ["a", "b", "c"]
    router.release("b")
    assert router.home("t1") == "b"
    assert router.home("new") is None
    assert router.route("t1") == "b"
    assert router.loads() == {"a": 1, "b": 1, "c": 1}


def test_a_label_leaves_above_the_bound_and_stays_where_it_went() -> None:
    router = StickyBoundedRouter(["a", "b"])
    assert [router.route(label) for label in ("t0", "t1", "t0")] == ["a", "b", "a"]  # 1 <= 1.25 * 3 / 2
    assert router.route("t0") == "a"  # 2 <= 1.25 * 4 / 2
    assert router.route("t0") == "a"  # 3 <= 1.25 * 5 / 2
    assert router.route("t0") == "b"  # 4 > 1.25 * 6 / 2
    for worker in ("a", "a", "a"):
        router.release(worker)
    assert router.loads() == {"a": 1, "b": 2}
    assert router.route("t0") == "b"  # 2 <= 1.25 * 4 / 2, though a has less


def test_weights_share_the_load() -> None:
    router = StickyBoundedRouter({"small": 1.0, "large": 3.0})
    placed = [router.route(f"t{number}") for number in range(8)]
    assert placed.count("large") == 6


def test_an_excluded_worker_loses_its_labels_for_good() -> None:
    router = StickyBoundedRouter(["a", "b"])
    assert router.route("t0") == "a"
    router.release("a")
    assert router.route("t0", ["a"]) == "b"
    router.release("b")
    assert router.route("t0") == "b"


def test_the_label_unused_longest_is_forgotten_first() -> None:
    router = StickyBoundedRouter(["a", "b"], most_labels=2)
    for label in ("t0", "t1", "t0", "t2"):
        router.release(router.route(label))
    assert router.home("t0") is not None
    assert router.home("t1") is None
    router.forget("t0")
    router.forget("t0")
    assert router.home("t0") is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((["a", "a"],), "once only, got 'a' again"),
        ((["a"], 0.5), "load_bound must be at least 1, got 0.5"),
        (({"a": 0.0},), "weight of 'a'"),
        (({"a": 1001.0},), "weight of 'a' must be at most 1000"),
        ((["a"], 1.25, 0), "most_labels"),
    ],
)
def test_what_makes_no_router_is_refused(arguments: tuple[object, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        StickyBoundedRouter(*arguments)  # type: ignore[arg-type]


def test_what_is_no_worker_and_no_request_is_refused() -> None:
    router = StickyBoundedRouter(["a"])
    with pytest.raises(LookupError, match="among the workers"):
        router.route("t0", ["b"])
    with pytest.raises(LookupError, match="leave one"):
        router.route("t0", ["a"])
    with pytest.raises(LookupError, match="among the workers"):
        router.release("b")
    with pytest.raises(RuntimeError, match="no request in flight"):
        router.release("a")
    assert router.loads() == {"a": 0}
    assert router.home("t0") is None


def test_labels_of_a_removed_worker_begin_anew_and_its_requests_end_later() -> None:
    router = StickyBoundedRouter(["a", "b"])
    assert [router.route(label) for label in ("t0", "t1")] == ["a", "b"]
    router.remove_worker("a")
    assert (router.home("t0"), router.home("t1"), router.loads()) == (None, "b", {"b": 1})
    assert router.route("t0") == "b"
    router.add_worker("a")
    assert router.loads() == {"b": 2, "a": 1}
    router.remove_worker("a")
    router.release("a")
    with pytest.raises(LookupError, match="among the workers"):
        router.release("a")


def test_without_workers_nothing_is_routed() -> None:
    router = StickyBoundedRouter([])
    with pytest.raises(LookupError, match="a worker must be added before 't0' can be routed"):
        router.route("t0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("random", ["a"]), "router must be one of lbch, sticky-bounded, got 'random'"),
        (("sticky-bounded", ["a"], 1.25, 64), "virtual_nodes is 64, which is for a hash ring"),
    ],
)
def test_routers_are_made_by_name(arguments: tuple[object, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_router(*arguments)  # type: ignore[arg-type]
    assert isinstance(make_router("sticky-bounded", ["a"]), StickyBoundedRouter)
    assert isinstance(make_router("lbch", ["a"], 1.25, 64), LoadBoundedRouter)


@given(
    st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=5),
    st.sampled_from([1.0, 1.1, 1.25, 2.0]),
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=120),
)
def test_no_choice_is_above_the_bound_and_no_label_moves_without_need(
    weights: list[float], load_bound: float, steps: list[tuple[int, bool]]
) -> None:
    named = {f"w{number}": weight for number, weight in enumerate(weights)}
    router = StickyBoundedRouter(named, load_bound)
    total_weight = sum(Fraction(weight) for weight in named.values())
    open_requests: list[str] = []
    last: dict[str, str] = {}
    for number, ends in steps:
        if ends and open_requests:
            router.release(open_requests.pop(number % len(open_requests)))
            continue
        label, loads = f"t{number}", router.loads()
        bound = Fraction(repr(load_bound)) * (len(open_requests) + 1) / total_weight
        may = {name for name in named if loads[name] / Fraction(named[name]) <= bound}
        chosen = router.route(label)
        assert chosen in may
        if last.get(label) in may:
            assert chosen == last[label]
        else:
            assert loads[chosen] / named[chosen] == min(loads[name] / named[name] for name in named)
        open_requests.append(chosen)
        last[label] = chosen
        assert {name: open_requests.count(name) for name in named} == router.loads()
