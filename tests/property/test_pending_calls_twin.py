"""The matching of tool calls against a search over all calls, written as the rule is said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coresched.sidecar.messages import ToolCall, canonical, read_arguments
from coresched.sidecar.pending import Call, Match, PendingCalls

OWNERS = ("a", "b", "c")

SAME = ToolCall("t", {"x": 1})
"""What most messages ask for and most requests make, so that they get into each other's way."""
OTHERS = [
    ToolCall("t", {"x": 1.0}),
    ToolCall("t", {"x": 1, "y": 1}),
    ToolCall("t", {"x": 2, "y": 1}),
    ToolCall("t", {}),
    ToolCall("u", {"x": 1}),
]

calls = st.one_of(st.just(SAME), st.just(SAME), st.sampled_from(OTHERS))
owners = st.sampled_from(OWNERS)
request = st.tuples(st.just("request"), st.one_of(st.none(), st.none(), owners), calls)
end = st.tuples(
    st.just("end"), st.integers(0, 3), st.sampled_from(["answered", "failed", "failed", "dropped"])
)
message = st.tuples(st.just("message"), owners, st.lists(calls, max_size=3))
steps = st.tuples(
    st.lists(message, min_size=2, max_size=4),
    st.lists(st.one_of(request, request, request, end, end, message), min_size=8, max_size=30),
).map(lambda parts: [*parts[0], *parts[1]])


@dataclass(eq=False)
class Asked:
    """One call as the twin knows it; `since` is when it came to stand as it does."""

    owner: str
    call: ToolCall
    since: int
    stands: str = "outstanding"
    requests: int = 0
    executed: bool = False


class Twin:
    """All calls in one list, and all of it looked through each time."""

    ORDER = ("outstanding", "failed", "under way", "answered")

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.time = 0

    def now(self) -> int:
        self.time += 1
        return self.time

    def message(self, owner: str, made: list[ToolCall]) -> list[Asked]:
        self.asked = [one for one in self.asked if one.owner != owner]
        new = [Asked(owner, call, self.now()) for call in made]
        self.asked += new
        return new

    def match(self, made: ToolCall, owner: str | None) -> tuple[Asked, bool, bool, bool] | None:
        mine = [one for one in self.asked if owner is None or one.owner == owner]
        equal = [one for one in mine if (one.call.name, one.call.arguments) == (made.name, made.arguments)]
        if equal:
            for stands in self.ORDER:
                so = [one for one in equal if one.stands == stands]
                if so:
                    found = min(so, key=lambda one: one.since)
                    break
            open_ones = {one.owner for one in equal if one.stands != "answered"}
            rivals = open_ones or {one.owner for one in equal}
            return found, bool(rivals - {found.owner}), found.stands != "outstanding", False
        scores = {
            id(one): 0.5
            if not one.call.arguments or not made.arguments
            else len(one.call.arguments.items() & made.arguments.items())
            for one in mine
            if one.call.name == made.name and one.stands == "outstanding"
        }
        best = max(scores.values(), default=0)
        if best == 0:
            return None
        alike = [one for one in mine if scores.get(id(one)) == best]
        found = min(alike, key=lambda one: one.since)
        return found, any(one.owner != found.owner for one in alike), False, True

    def begin(self, one: Asked) -> None:
        one.requests += 1
        if one.stands != "answered":
            one.stands, one.since = "under way", self.now()

    def end(self, one: Asked, how: str) -> None:
        one.requests -= 1
        one.executed |= how != "dropped"
        if how == "answered":
            one.stands, one.since = "answered", self.now()
        elif one.requests == 0 and one.stands == "under way":
            one.stands, one.since = ("failed" if one.executed else "outstanding"), self.now()


@settings(max_examples=300)
@given(steps)
def test_each_request_is_taken_for_the_call_that_the_rule_says(course: list[Any]) -> None:
    pending, twin = PendingCalls(), Twin()
    offered: dict[str, list[Call]] = {owner: [] for owner in OWNERS}
    same: dict[Asked, Call] = {}
    under_way: list[Asked] = []
    for step, who, what in course:
        if step == "message":
            pending.withdraw(offered[who])
            offered[who] = pending.offer(who, what)
            same.update(zip(twin.message(who, what), offered[who], strict=True))
        elif step == "request":
            wanted, got = twin.match(what, who), pending.match(what, who)
            if wanted is None:
                assert got is None
                continue
            found, *flags = wanted
            assert got == Match(same[found], *flags)
            twin.begin(found)
            pending.begin(same[found])
            under_way.append(found)
        elif under_way:
            one = under_way.pop(who % len(under_way))
            twin.end(one, what)
            pending.end(same[one], executed=what != "dropped", answered=what == "answered")
        left = [one for one in twin.asked if one.stands == "outstanding"]
        assert {id(call) for call in pending.outstanding()} == {id(same[one]) for one in left}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def _typed(value: Any) -> Any:
    """What tells values apart that JSON tells apart: true is not 1, and 1 is 1.0."""
    if isinstance(value, bool) or value is None:
        return (type(value), value)
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    return [_typed(item) for item in value] if isinstance(value, list) else value


@given(json_values, json_values)
def test_calls_have_one_text_if_and_only_if_their_arguments_are_equal(left: Any, right: Any) -> None:
    texts = [canonical(ToolCall("t", value)) for value in (left, right)]
    assert (texts[0] == texts[1]) is (_typed(left) == _typed(right))


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=3))
def test_arguments_are_the_same_as_text_and_as_an_object(arguments: dict[str, Any]) -> None:
    import json

    assert canonical(ToolCall("t", read_arguments(json.dumps(arguments)))) == canonical(
        ToolCall("t", read_arguments(arguments))
    )
