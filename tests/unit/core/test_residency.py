"""Routing-residency: hand-computed orders, held by the compiled policy and its twin alike."""

from typing import Any, NamedTuple

import pytest

from coresched.core import AttachedOrder, ResidencyPolicy, Waiting
from coresched.core.reference import ReferenceResidencyPolicy, ReferenceWaiting


class Kind(NamedTuple):
    policy: Any
    waiting: Any


@pytest.fixture(
    params=[Kind(ResidencyPolicy, Waiting), Kind(ReferenceResidencyPolicy, ReferenceWaiting)],
    ids=["compiled", "twin"],
)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


def ids(requests: list[Any]) -> str:
    return " ".join(request.id for request in requests)


def test_resident_trajectories_come_first_and_each_tier_is_in_entry_order(kind: Kind) -> None:
    policy = kind.policy()
    policy.resident("warm")
    policy.resident("hot")
    waiting = [
        kind.waiting("cold", "cold", 1.0),
        kind.waiting("unlabelled", None, 0.5),
        kind.waiting("warm", "warm", 5.0),
        kind.waiting("hot", "hot", 4.0),
    ]
    assert ids(policy.order(waiting)) == "hot warm unlabelled cold"
    assert ids(waiting) == "cold unlabelled warm hot"


def test_the_engines_word_counts_when_it_is_given_not_when_a_request_entered(kind: Kind) -> None:
    policy = kind.policy()
    waiting = [kind.waiting("a", "a", 1.0), kind.waiting("b", "b", 2.0)]
    assert ids(policy.order(waiting)) == "a b"
    policy.resident("b")
    assert ids(policy.order(waiting)) == "b a"
    policy.resident("a")
    assert ids(policy.order(waiting)) == "a b"
    policy.evicted("a")
    assert ids(policy.order(waiting)) == "b a"
    policy.clear()
    assert ids(policy.order(waiting)) == "a b"


def test_full_ties_keep_their_order_and_a_request_may_stand_twice(kind: Kind) -> None:
    policy = kind.policy()
    policy.resident("warm")
    twice = kind.waiting("w", "warm", 1.0)
    waiting = [kind.waiting("x", None, 1.0), twice, kind.waiting("y", "other", 1.0), twice]
    assert ids(policy.order(waiting)) == "w w x y"


def test_what_is_resident_can_be_asked(kind: Kind) -> None:
    policy = kind.policy()
    policy.resident("a")
    policy.resident("a")
    policy.resident("b")
    policy.evicted("unknown")
    assert policy.labels() == {"a", "b"}
    assert len(policy) == 2
    assert "a" in policy
    assert "unknown" not in policy
    policy.evicted("a")
    assert policy.labels() == {"b"}


def test_what_is_no_label_is_refused(kind: Kind) -> None:
    with pytest.raises(TypeError, match="label must be a str"):
        kind.policy().resident(7)
    with pytest.raises(ValueError, match="label must not be empty"):
        kind.policy().resident("")


def test_only_waiting_requests_can_be_ordered() -> None:
    with pytest.raises(TypeError, match="waiting must hold Waiting objects only"):
        ResidencyPolicy().order(["a"])  # type: ignore[list-item]


def test_no_hit_is_asked_for_on_an_engines_own_requests() -> None:
    class Request:
        def __init__(self, label: str | None, number: int) -> None:
            self.label, self.number = label, number

    policy = ResidencyPolicy()
    order = AttachedOrder(policy, "_waiting")
    queue = [Request("a", 1), Request(None, 2), Request("b", 3)]

    def enter(request: Request) -> Waiting:
        return Waiting("", request.label, request.number)

    assert order.order(queue, enter) is False
    policy.resident("b")
    assert order.order(queue, enter) is True
    assert [request.number for request in queue] == [3, 1, 2]
    assert order.order(queue, enter) is False
    policy.evicted("b")
    assert order.order(queue, enter) is True
    assert [request.number for request in queue] == [1, 2, 3]
    assert order.queries == 0
