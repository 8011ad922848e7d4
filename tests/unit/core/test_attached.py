"""RP on an engine's own list of its own requests: the order, the guarantees and the errors."""

import doctest
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import coresched.core.attached
from coresched.core import AttachedOrder, RoutingPrefixPolicy, Waiting
from coresched.core.reference import ReferenceAttachedOrder, ReferencePrefixPolicy, ReferenceWaiting


class EngineRequest:
    def __init__(self, name: str, label: str | None, arrived_at: float, priority: Any = 0) -> None:
        self.name = name
        self.label = label
        self.arrived_at = arrived_at
        self.priority = priority


class Engine:
    """What an engine's adapter hands over; keeps the names of the requests it was asked about."""

    def __init__(self, hits: dict[str, int] | None = None, kind: Any = Waiting) -> None:
        self.hits = hits or {}
        self.kind = kind
        self.entered: list[str] = []
        self.asked: list[str] = []

    def enter(self, request: EngineRequest) -> Any:
        self.entered.append(request.name)
        return self.kind(request.name, request.label, request.arrived_at)

    def prefix_hit(self, request: EngineRequest) -> int:
        self.asked.append(request.name)
        return self.hits[request.name]


@pytest.fixture(params=["compiled", "twin"])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes an order whose label set holds `admitted`, and its engine."""

    def order_of(*admitted: str, hits: dict[str, int] | None = None, **options: Any) -> Any:
        if request.param == "compiled":
            policy: Any = RoutingPrefixPolicy(8)
            order: Any = AttachedOrder(policy, "waiting", **options)
        else:
            policy = ReferencePrefixPolicy(8)
            order = ReferenceAttachedOrder(policy, "waiting", **options)
        for label in admitted:
            policy.admitted(label)
        return order, Engine(hits, Waiting if request.param == "compiled" else ReferenceWaiting)

    return order_of


def names(requests: list[EngineRequest]) -> str:
    return " ".join(request.name for request in requests)


def warm_queue() -> list[EngineRequest]:
    return [
        EngineRequest("cold", "c", 1.0),
        EngineRequest("short", "k", 2.0),
        EngineRequest("unlabeled", None, 0.5),
        EngineRequest("long", "k", 3.0),
    ]


def test_the_engines_list_is_put_into_rp_order(make: Any) -> None:
    order, engine = make("k", hits={"short": 64, "long": 512})
    queue = warm_queue()
    assert order.order(queue, engine.enter, engine.prefix_hit) is True
    assert names(queue) == "long short unlabeled cold"
    assert engine.entered == ["cold", "short", "unlabeled", "long"]
    assert engine.asked == ["short", "long"]


def test_each_request_is_entered_once_and_asked_once(make: Any) -> None:
    order, engine = make("k", hits={"short": 64, "long": 512, "cold": 9})
    queue = warm_queue()
    for _ in range(3):
        order.order(queue, engine.enter, engine.prefix_hit)
    order.policy.admitted("c")
    assert order.order(queue, engine.enter, engine.prefix_hit) is True
    assert names(queue) == "long short cold unlabeled"
    assert len(engine.entered) == 4
    assert engine.asked == ["short", "long", "cold"]
    assert (order.passes, order.queries, order.changed) == (4, 3, 2)


def test_a_higher_rank_comes_first_whatever_is_cached(make: Any) -> None:
    queue = warm_queue()
    for request, priority in zip(queue, [5, -(2**63), 0, 0], strict=True):
        request.priority = priority
    order, engine = make("k", hits={"short": 64, "long": 512}, rank="priority")
    order.order(queue, engine.enter, engine.prefix_hit)
    assert names(queue) == "cold long unlabeled short"
    queue[0].priority = -1
    order.order(queue, engine.enter, engine.prefix_hit)
    assert names(queue) == "long unlabeled cold short"


def test_a_lower_rank_comes_first_when_told_so(make: Any) -> None:
    queue = warm_queue()
    queue[0].priority = 2**63 - 1
    queue[2].priority = -1
    order, engine = make("k", hits={"short": 1, "long": 2}, rank="priority", highest_rank_first=False)
    order.order(queue, engine.enter, engine.prefix_hit)
    assert names(queue) == "unlabeled long short cold"


def test_a_request_that_stands_twice_is_asked_once_and_stays_twice(make: Any) -> None:
    order, engine = make("k", hits={"short": 64, "long": 512})
    queue = warm_queue()
    queue.insert(0, queue[3])
    order.order(queue, engine.enter, engine.prefix_hit)
    assert names(queue) == "long long short unlabeled cold"
    assert engine.entered.count("long") == 1
    assert engine.asked.count("long") == 1


def test_requests_that_share_a_waiting_both_stay(make: Any) -> None:
    order, engine = make("k", hits={"a": 5})
    first, second = EngineRequest("a", "k", 1.0), EngineRequest("b", "k", 1.0)
    order.order([first], engine.enter, engine.prefix_hit)
    second.waiting = first.waiting  # type: ignore[attr-defined]
    queue = [EngineRequest("c", None, 0.0), second, first]
    order.order(queue, engine.enter, engine.prefix_hit)
    assert names(queue) == "b a c"


def test_none_under_the_attribute_counts_as_nothing_attached(make: Any) -> None:
    order, engine = make()
    queue = [EngineRequest("a", None, 1.0)]
    queue[0].waiting = None  # type: ignore[attr-defined]
    assert order.order(queue, engine.enter, engine.prefix_hit) is False
    assert engine.entered == ["a"]


def test_a_deleted_attribute_makes_a_request_enter_anew(make: Any) -> None:
    order, engine = make("k", hits={"short": 64, "long": 512})
    queue = warm_queue()
    order.order(queue, engine.enter, engine.prefix_hit)
    engine.hits["short"] = 1024
    del queue[1].waiting  # type: ignore[attr-defined]
    assert order.order(queue, engine.enter, engine.prefix_hit) is True
    assert names(queue) == "short long unlabeled cold"
    assert engine.asked == ["short", "long", "short"]


def test_a_deleted_attribute_is_seen_of_a_request_that_stands_twice(make: Any) -> None:
    order, engine = make()
    queue = [EngineRequest("a", None, 0.0)] * 2
    order.order(queue, engine.enter, engine.prefix_hit)
    del queue[0].waiting  # type: ignore[attr-defined]
    order.order(queue, engine.enter, engine.prefix_hit)
    assert engine.entered == ["a", "a"]


def test_a_request_at_the_place_of_one_that_ended_is_entered_and_asked(make: Any) -> None:
    order, engine = make("k", hits={str(number): 1 for number in range(100)})
    queue = []
    for number in range(100):  # each gets the memory of the one before
        queue[:] = [EngineRequest(str(number), "k", 0.0)]
        order.order(queue, engine.enter, engine.prefix_hit)
    assert engine.entered == engine.asked == [str(number) for number in range(100)]


def test_no_request_is_kept_alive(make: Any) -> None:
    order, engine = make("k", hits={"short": 64, "long": 512})
    queue = warm_queue()
    order.order(queue, engine.enter, engine.prefix_hit)
    alive = weakref.ref(queue[0])
    queue.clear()
    assert alive() is None


def test_requests_that_allow_no_weak_reference_are_ordered(make: Any) -> None:
    class Compact:
        __slots__ = ("arrived_at", "label", "name", "waiting")

        def __init__(self, name: str, label: str | None, arrived_at: float) -> None:
            self.name, self.label, self.arrived_at = name, label, arrived_at

    order, engine = make("k", hits={"b": 64})
    queue = [Compact("a", None, 1.0), Compact("b", "k", 2.0)]
    assert order.order(queue, engine.enter, engine.prefix_hit) is True
    assert order.order(queue, engine.enter, engine.prefix_hit) is False
    assert [request.name for request in queue] == ["b", "a"]
    queue.reverse()
    assert order.order(queue, engine.enter, engine.prefix_hit) is True


@pytest.mark.parametrize("broken", ["enter", "prefix_hit"])
def test_an_error_leaves_the_list_and_keeps_what_was_learned(make: Any, broken: str) -> None:
    order, engine = make("k", hits={"short": 64, "long": 512})
    queue = warm_queue()
    fails = [True]

    def failing(request: EngineRequest) -> Any:
        if request.name == "long" and fails:
            raise ZeroDivisionError
        return getattr(engine, broken)(request)

    calls = {"enter": engine.enter, "prefix_hit": engine.prefix_hit, broken: failing}
    with pytest.raises(ZeroDivisionError):
        order.order(queue, **calls)
    assert names(queue) == "cold short unlabeled long"
    fails.clear()
    order.order(queue, **calls)
    assert names(queue) == "long short unlabeled cold"
    assert sorted(engine.entered) == ["cold", "long", "short", "unlabeled"]
    assert sorted(engine.asked) == ["long", "short"]
    assert order.changed == 1


def ordered(queue: Any, **options: Any) -> AttachedOrder:
    """One pass of a compiled order, in which `options` may replace what the engine gives."""
    engine = Engine({"short": 64, "long": 512})
    policy = RoutingPrefixPolicy(8)
    policy.admitted("k")
    order = AttachedOrder(policy, "waiting", rank=options.pop("rank", None))
    order.order(queue, **{"enter": engine.enter, "prefix_hit": engine.prefix_hit, **options})
    return order


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"enter": lambda request: "w"}, TypeError, r"^enter\(request\) must return a Waiting, got 'w'"),
        ({"prefix_hit": lambda request: -1}, ValueError, r"^prefix_hit\(request\) must be at least 0"),
        ({"prefix_hit": lambda request: 1.0}, TypeError, r"^prefix_hit\(request\) must be an int"),
        ({"rank": "name"}, TypeError, "^name of a request must be an int, got 'cold' of type str"),
        ({"rank": "absent"}, AttributeError, "absent"),
    ],
)
def test_a_bad_answer_is_named_and_leaves_the_list(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    queue = warm_queue()
    with pytest.raises(error, match=message):
        ordered(queue, **options)
    assert names(queue) == "cold short unlabeled long"


@pytest.mark.parametrize(
    ("priority", "error"), [(None, TypeError), (True, TypeError), (2**63, ValueError), (-(2**64), ValueError)]
)
def test_a_rank_that_is_no_64_bit_int_is_refused(priority: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^priority of a request must be"):
        ordered([EngineRequest("a", None, 0.0, priority)], rank="priority")


def test_something_else_under_the_attribute_is_refused() -> None:
    request = EngineRequest("a", None, 0.0)
    request.waiting = 7  # type: ignore[attr-defined]
    with pytest.raises(
        TypeError, match=r"^waiting of a request must be the Waiting that enter made of it, got 7"
    ):
        ordered([request])


def test_only_a_list_is_ordered() -> None:
    with pytest.raises(TypeError, match="requests"):
        ordered(tuple(warm_queue()))


@pytest.mark.parametrize("call", ["enter", "prefix_hit"])
@pytest.mark.parametrize("change", [list.clear, list.reverse, lambda queue: queue.append(queue[0])])
def test_a_call_that_changes_the_list_is_refused(call: str, change: Callable[[Any], None]) -> None:
    queue = warm_queue()
    engine = Engine({"short": 64, "long": 512})

    def changing(request: EngineRequest) -> Any:
        if request.name == "short":
            change(queue)
        return getattr(engine, call)(request)

    with pytest.raises(RuntimeError, match=r"^requests must not change while they are ordered"):
        ordered(queue, **{call: changing})


def test_admitting_a_waiting_label_from_within_prefix_hit_is_refused() -> None:
    policy = RoutingPrefixPolicy(8)
    policy.admitted("k")
    queue = warm_queue()

    def admit(request: EngineRequest) -> int:
        policy.admitted("c")
        return 0

    with pytest.raises(RuntimeError, match="was a label admitted while hits were being asked"):
        AttachedOrder(policy, "waiting").order(queue, Engine().enter, admit)
    assert names(queue) == "cold short unlabeled long"


def test_ordering_from_within_prefix_hit_asks_no_one_twice() -> None:
    policy = RoutingPrefixPolicy(8)
    policy.admitted("k")
    order = AttachedOrder(policy, "waiting", rank="priority")
    engine, queue = Engine({"short": 64, "long": 512}), warm_queue()

    def nested(request: EngineRequest) -> int:
        order.order(queue[-1:], engine.enter, engine.prefix_hit)
        return engine.prefix_hit(request)

    order.order(queue, engine.enter, nested)
    assert names(queue) == "long short unlabeled cold"
    assert sorted(engine.asked) == ["long", "short"]


def test_a_request_that_takes_no_attribute_is_refused() -> None:
    class Closed:
        __slots__ = ("arrived_at", "label", "name")

    request = Closed()
    request.name, request.label, request.arrived_at = "a", None, 0.0  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="waiting"):
        ordered([request])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"policy": None}, TypeError, "policy"),
        ({"attribute": 3}, TypeError, "^attribute must be a str, got 3 of type int"),
        ({"attribute": ""}, ValueError, "^attribute must be the name of an attribute, got ''"),
        ({"rank": "a b"}, ValueError, "^rank must be the name of an attribute, got 'a b'"),
    ],
)
def test_a_bad_argument_is_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        AttachedOrder(**{"policy": RoutingPrefixPolicy(1), "attribute": "waiting", **options})


@pytest.mark.parametrize("size", [2, 10, 500])
def test_ordering_keeps_every_reference_count(size: int) -> None:
    policy = RoutingPrefixPolicy(4)
    policy.admitted("k")
    order = AttachedOrder(policy, "waiting", rank="priority")
    engine = Engine({str(i): i % 7 for i in range(size)})
    queue = [EngineRequest(str(i), "k" if i % 3 else None, float(-i), i % 2) for i in range(size)]
    order.order(queue, engine.enter, engine.prefix_hit)
    before = [(sys.getrefcount(request), sys.getrefcount(request.waiting)) for request in queue]  # type: ignore[attr-defined]
    for _ in range(5):
        queue.reverse()
        order.order(queue, engine.enter, engine.prefix_hit)
    after = [(sys.getrefcount(request), sys.getrefcount(request.waiting)) for request in queue]  # type: ignore[attr-defined]
    assert after == before
    assert order.changed == 6


def test_the_documented_example_holds() -> None:
    result = doctest.testmod(coresched.core.attached)
    assert result.attempted > 0
    assert result.failed == 0
