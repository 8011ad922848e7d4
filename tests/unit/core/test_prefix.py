"""RP: hand-computed orders of a worker's waiting queue, held by the compiled policy and its twin alike."""

import copy
import doctest
import math
import random
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import coresched.core.prefix
from coresched.core import RoutingPrefixPolicy, Waiting
from coresched.core.reference import ReferencePrefixPolicy, ReferenceWaiting


class Kind(NamedTuple):
    policy: Any
    waiting: Any


@pytest.fixture(
    params=[Kind(RoutingPrefixPolicy, Waiting), Kind(ReferencePrefixPolicy, ReferenceWaiting)],
    ids=["compiled", "twin"],
)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


class Hits:
    """A prefix_hit that answers from a table and keeps the ids it was asked for."""

    def __init__(self, table: dict[str, int]) -> None:
        self.table = table
        self.asked: list[str] = []

    def __call__(self, request: Any) -> int:
        self.asked.append(request.id)
        return self.table[request.id]


def ids(requests: list[Any]) -> list[str]:
    return [request.id for request in requests]


def no_hit_may_be_asked(request: Any) -> int:
    raise AssertionError(f"asked for {request.id}")


def test_labels_in_the_set_come_first_then_longer_hits_then_earlier_entry(kind: Kind) -> None:
    policy = kind.policy(label_capacity=8)
    policy.admitted("warm")
    policy.admitted("hot")
    waiting = [
        kind.waiting("cold, early", "cold", 1.0),
        kind.waiting("warm, 100, late", "warm", 5.0),
        kind.waiting("hot, 900", "hot", 9.0),
        kind.waiting("warm, 100, early", "warm", 4.0),
        kind.waiting("cold, earliest", "other", 0.5),
        kind.waiting("hot, 0", "hot", 0.0),
    ]
    hits = Hits({"warm, 100, late": 100, "hot, 900": 900, "warm, 100, early": 100, "hot, 0": 0})
    assert ids(policy.order(waiting, prefix_hit=hits)) == [
        "hot, 900",
        "warm, 100, early",
        "warm, 100, late",
        "hot, 0",
        "cold, earliest",
        "cold, early",
    ]


def test_a_hit_of_zero_in_the_set_still_comes_before_every_label_outside(kind: Kind) -> None:
    policy = kind.policy(4)
    policy.admitted("k")
    waiting = [kind.waiting("out", "j", -1e308), kind.waiting("in", "k", 1e308)]
    assert ids(policy.order(waiting, lambda request: 0)) == ["in", "out"]


def test_the_order_is_a_new_list_of_the_same_objects(kind: Kind) -> None:
    policy = kind.policy(4)
    waiting = [kind.waiting("b", None, 2.0), kind.waiting("a", None, 1.0)]
    ordered = policy.order(waiting, no_hit_may_be_asked)
    assert ids(waiting) == ["b", "a"]
    assert ordered[0] is waiting[1]
    assert ordered[1] is waiting[0]
    assert ids(policy.order(tuple(waiting), no_hit_may_be_asked)) == ["a", "b"]
    assert policy.order([], no_hit_may_be_asked) == []


def test_full_ties_keep_their_present_order(kind: Kind) -> None:
    policy = kind.policy(4)
    policy.admitted("k")
    tied = [kind.waiting(f"in{i}", "k", 1.0) for i in range(50)]
    outside = [kind.waiting(f"out{i}", None, 1.0) for i in range(50)]
    random.Random(3).shuffle(tied)
    mixed = [request for pair in zip(outside, tied, strict=True) for request in pair]
    assert policy.order(mixed, lambda request: 7) == tied + outside


def test_requests_without_a_label_are_never_asked_and_never_enter_the_set(kind: Kind) -> None:
    policy = kind.policy(4)
    policy.admitted(None)
    waiting = [kind.waiting("a", None, 1.0)]
    assert ids(policy.order(waiting, no_hit_may_be_asked)) == ["a"]
    assert policy.labels() == []
    assert None not in policy
    assert waiting[0].hit is None


def test_a_request_is_asked_once_also_when_its_label_leaves_and_returns(kind: Kind) -> None:
    policy = kind.policy(label_capacity=1)
    request, other = kind.waiting("r", "k", 1.0), kind.waiting("o", "j", 0.0)
    hits = Hits({"r": 64, "o": 1})
    policy.order([other, request], hits)
    assert (hits.asked, request.hit) == ([], None)  # outside the set: no query

    policy.admitted("k")
    assert ids(policy.order([other, request], hits)) == ["r", "o"]
    assert (hits.asked, request.hit) == (["r"], 64)

    policy.admitted("j")  # evicts k
    hits.table["r"] = 4096  # the cache has changed, the record has not
    assert ids(policy.order([request, other], hits)) == ["o", "r"]
    assert (hits.asked, request.hit) == (["r", "o"], 64)

    policy.admitted("k")
    assert ids(policy.order([other, request], hits)) == ["r", "o"]
    assert (hits.asked, request.hit) == (["r", "o"], 64)


def test_a_steady_pass_asks_nothing(kind: Kind) -> None:
    policy = kind.policy(4)
    policy.admitted("k")
    waiting = [kind.waiting("a", "k", 1.0), kind.waiting("b", "j", 0.0)]
    ordered = policy.order(waiting, lambda request: 5)
    policy.admitted("k")  # a touch changes no tier
    assert policy.order(ordered, no_hit_may_be_asked) == ordered


def test_requests_are_asked_in_list_order(kind: Kind) -> None:
    policy = kind.policy(4)
    policy.admitted("k")
    hits = Hits({"c": 1, "a": 3, "b": 2})
    policy.order([kind.waiting(name, "k", 0.0) for name in "cab"], hits)
    assert hits.asked == ["c", "a", "b"]


def test_a_raising_query_leaves_its_request_unasked_and_the_others_what_was_learned(kind: Kind) -> None:
    policy = kind.policy(4)
    policy.admitted("k")
    first, second, third = (kind.waiting(name, "k", 0.0) for name in ("first", "second", "third"))
    hits = Hits({"first": 1, "third": 3})
    with pytest.raises(KeyError):
        policy.order([first, second, third], hits)
    assert [request.hit for request in (first, second, third)] == [1, None, None]

    hits.table["second"] = 2
    assert ids(policy.order([first, second, third], hits)) == ["third", "second", "first"]
    assert hits.asked == ["first", "second", "second", "third"]


@pytest.mark.parametrize(
    ("hit", "error"), [(-1, ValueError), (2**63, ValueError), (1.0, TypeError), (True, TypeError)]
)
def test_a_bad_hit_is_refused_and_leaves_the_request_unasked(
    kind: Kind, hit: object, error: type[Exception]
) -> None:
    policy = kind.policy(4)
    policy.admitted("k")
    request = kind.waiting("r", "k", 0.0)
    with pytest.raises(error, match=r"^prefix_hit\(request\) must be"):
        policy.order([request], lambda _: hit)
    assert request.hit is None
    policy.order([request], lambda _: 2**63 - 1)
    assert request.hit == 2**63 - 1


def test_an_object_twice_in_the_list_is_asked_once_and_stays_twice(kind: Kind) -> None:
    policy = kind.policy(4)
    policy.admitted("k")
    twice, once = kind.waiting("twice", "k", 1.0), kind.waiting("once", "k", 0.0)
    hits = Hits({"twice": 10, "once": 1})
    assert ids(policy.order([once, twice, twice], hits)) == ["twice", "twice", "once"]
    assert hits.asked == ["once", "twice"]


def test_a_request_ordered_by_two_policies_has_the_tier_of_each_and_one_hit(kind: Kind) -> None:
    one, other = kind.policy(4), kind.policy(4)
    one.admitted("k")
    other.admitted("j")
    waiting = [kind.waiting("k", "k", 1.0), kind.waiting("j", "j", 0.0)]
    hits = Hits({"k": 8, "j": 8})
    for _ in range(2):
        assert ids(one.order(waiting, hits)) == ["k", "j"]
        assert ids(other.order(waiting, hits)) == ["j", "k"]
    assert hits.asked == ["k", "j"]


def test_the_set_holds_the_labels_admitted_last_and_a_touch_renews(kind: Kind) -> None:
    policy = kind.policy(label_capacity=3)
    for label in ["a", "b", "c", "a", "d"]:
        policy.admitted(label)
    assert policy.labels() == ["c", "a", "d"]
    assert [label in policy for label in "abcd"] == [True, False, True, True]
    policy.admitted("c")
    policy.admitted("e")
    assert policy.labels() == ["d", "c", "e"]


def test_ordering_does_not_touch_the_set(kind: Kind) -> None:
    policy = kind.policy(label_capacity=2)
    policy.admitted("a")
    policy.admitted("b")
    policy.order([kind.waiting("r", "a", 0.0), kind.waiting("s", "c", 0.0)], lambda request: 1)
    assert policy.labels() == ["a", "b"]
    policy.admitted("c")  # so a was still the oldest
    assert policy.labels() == ["b", "c"]


def test_admission_order_decides_which_label_is_evicted(kind: Kind) -> None:
    for admitted, kept in [(["a", "b", "c"], ["b", "c"]), (["c", "b", "a"], ["b", "a"])]:
        policy = kind.policy(label_capacity=2)
        for label in admitted:
            policy.admitted(label)
        assert policy.labels() == kept


@pytest.mark.parametrize("label", ["x" * 512, "é" * 256, "\U0001f600" * 128])
def test_labels_of_512_bytes_fit(kind: Kind, label: str) -> None:
    policy = kind.policy(1)
    policy.admitted(label)
    assert kind.waiting("r", label, 0.0).label == label
    assert label in policy


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RoutingPrefixPolicy(0), ValueError, "^label_capacity must be at least 1, got 0"),
        (lambda: RoutingPrefixPolicy(98.0), TypeError, "^label_capacity must be an int"),  # type: ignore[arg-type]
        (lambda: RoutingPrefixPolicy(True), TypeError, "^label_capacity must be an int"),
        (lambda: RoutingPrefixPolicy(1).admitted(""), ValueError, "^label must not be empty"),
        (lambda: RoutingPrefixPolicy(1).admitted("é" * 257), ValueError, "^label must be at most 512"),
        (lambda: RoutingPrefixPolicy(1).admitted(7), TypeError, "^label must be a str"),  # type: ignore[arg-type]
        (lambda: Waiting(7, "k", 0.0), TypeError, "^id must be a str, got 7"),  # type: ignore[arg-type]
        (lambda: Waiting("r", "", 0.0), ValueError, "^label must not be empty"),
        (lambda: Waiting("r", "a\ud800", 0.0), ValueError, "^label must be text"),
        (lambda: Waiting("r", "k", math.nan), ValueError, "^queued_at must be a finite number, got nan"),
        (lambda: Waiting("r", "k", -math.inf), ValueError, "^queued_at must be a finite number"),
        (lambda: Waiting("r", "k", "3"), TypeError, "^queued_at must be an int or a float"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_argument_is_named(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_refused_label_leaves_the_set_as_it_was() -> None:
    policy = RoutingPrefixPolicy(1)
    policy.admitted("k")
    with pytest.raises(ValueError, match="label"):
        policy.admitted("")
    assert policy.labels() == ["k"]


def test_a_list_with_something_else_in_it_is_refused_before_any_query() -> None:
    policy = RoutingPrefixPolicy(4)
    policy.admitted("k")
    waiting: list[Any] = [Waiting("r", "k", 0.0), "r"]
    with pytest.raises(TypeError, match=r"^waiting must hold Waiting objects only, got 'r'"):
        policy.order(waiting, no_hit_may_be_asked)


def test_admitting_a_waiting_label_from_within_prefix_hit_is_refused_and_asks_no_one_twice() -> None:
    policy = RoutingPrefixPolicy(4)
    policy.admitted("k")
    waiting = [Waiting("r", "k", 0.0), Waiting("s", "j", 0.0)]

    def admit_while_asked(request: Waiting) -> int:
        policy.admitted("j")
        return 5

    with pytest.raises(RuntimeError, match="was a label admitted while hits were being asked"):
        policy.order(waiting, admit_while_asked)
    assert [request.hit for request in waiting] == [5, None]
    hits = Hits({"s": 9})
    assert ids(policy.order(waiting, hits)) == ["s", "r"]
    assert hits.asked == ["s"]


def test_ordering_from_within_prefix_hit_asks_no_one_twice() -> None:
    policy = RoutingPrefixPolicy(4)
    policy.admitted("k")
    waiting = [Waiting("r", "k", 0.0), Waiting("s", "k", 0.0)]
    inner = Hits({"s": 9})

    def order_while_asked(request: Waiting) -> int:
        policy.order(waiting[1:], inner)
        return 5

    assert ids(policy.order(waiting, order_while_asked)) == ["s", "r"]
    assert inner.asked == ["s"]


@pytest.mark.parametrize("size", [2, 10, 500])
def test_sorting_keeps_every_reference_count(size: int) -> None:
    policy = RoutingPrefixPolicy(4)
    policy.admitted("k")
    waiting = [Waiting(str(i), "k" if i % 3 else None, float(-i)) for i in range(size)]
    before = [sys.getrefcount(request) for request in waiting]
    for _ in range(5):
        assert len(policy.order(waiting, lambda request: int(request.id) % 7)) == size
        random.Random(size).shuffle(waiting)
    assert sorted(sys.getrefcount(request) for request in waiting) == sorted(before)


def test_a_waiting_request_cannot_be_altered_and_shows_itself() -> None:
    request = Waiting("r", "k", 1.5)
    for name in ("id", "label", "queued_at", "hit"):
        with pytest.raises(AttributeError):
            setattr(request, name, None)
    assert repr(request) == "Waiting('r', 'k', queued_at=1.5, hit=None)"


def test_a_policy_and_a_request_refuse_to_be_copied() -> None:
    for structure in (RoutingPrefixPolicy(1), Waiting("r", "k", 0.0)):
        with pytest.raises(TypeError):
            copy.deepcopy(structure)


def test_the_documented_example_holds() -> None:
    result = doctest.testmod(coresched.core.prefix)
    assert result.attempted > 0
    assert result.failed == 0


def test_constructors_show_their_signatures() -> None:
    import inspect

    from coresched import ChainAdvancingQueue, LoadBoundedRouter

    expected = "(workers, load_bound=1.25, virtual_nodes=128, slack=0)"
    assert str(inspect.signature(LoadBoundedRouter)) == expected
    assert str(inspect.signature(RoutingPrefixPolicy)) == "(label_capacity)"
    assert str(inspect.signature(Waiting)) == "(id, label, queued_at)"
    assert str(inspect.signature(ChainAdvancingQueue)) == "(band_s=30.0, bucket_s=1.0)"
