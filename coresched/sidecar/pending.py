"""The tool calls of the last assistant message of every trajectory, and which of them a request makes.

A request to a tool server does not say whose it is, only name and arguments. It is taken for the call that
some assistant message asked for and nobody has made yet; else for a call made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import count
from typing import Any, NamedTuple

from coresched.sidecar.messages import ToolCall, canonical


class Progress(IntEnum):
    """How far a call has come, in the order in which a request is taken for one."""

    OUTSTANDING = 0
    """The harness has not made it, or its request was never executed."""
    FAILED = 1
    """It was executed, and the harness got no answer, or an error."""
    UNDER_WAY = 2
    ANSWERED = 3


class Call:
    """One tool call that an assistant message asked for, with all the requests that make it."""

    __slots__ = ("asked", "executed", "key", "number", "owner", "progress", "requests")

    def __init__(self, owner: str, asked: ToolCall) -> None:
        self.owner = owner
        """The label of the trajectory."""
        self.asked = asked
        self.key = canonical(asked)
        self.number = 0
        """Grows with every change of progress of any call: of two, which came there first."""
        self.progress = Progress.OUTSTANDING
        self.requests = 0
        """Requests under way that make it."""
        self.executed = False
        """Whether one of them ever got as far as the tool server."""


class Match(NamedTuple):
    """A request and the call it makes.

    `ambiguous`: it might as well be another trajectory's. `again`: the call was made before. `near`: the
    harness changed the arguments.
    """

    call: Call
    ambiguous: bool
    again: bool
    near: bool


class PendingCalls:
    """Calls of all trajectories, from the assistant message that asks for them to the next request."""

    def __init__(self) -> None:
        self._by_key: dict[str, list[Call]] = {}
        self._by_name: dict[str, list[Call]] = {}
        self._numbers = count(1)

    def offer(self, owner: str, calls: Iterable[ToolCall]) -> list[Call]:
        """The trajectory's last message asks for these calls."""
        offered = [Call(owner, asked) for asked in calls]
        for call in offered:
            call.number = next(self._numbers)
            self._by_key.setdefault(call.key, []).append(call)
            self._by_name.setdefault(call.asked.name, []).append(call)
        return offered

    def withdraw(self, calls: Iterable[Call]) -> None:
        """They are made no more: the trajectory goes on to its next turn, or has ended."""
        for call in calls:
            for index, name in ((self._by_key, call.key), (self._by_name, call.asked.name)):
                index[name].remove(call)
                if not index[name]:
                    del index[name]

    def match(self, made: ToolCall, owner: str | None = None) -> Match | None:
        """The call that a request makes, of that owner if the request named one; None if there is none.

        Of calls with the same name and arguments: the one outstanding longest, else one that failed, is
        under way or was answered, in this order, since longest. Else an outstanding call of that name whose
        arguments are the most alike, if they have one in common or either has none at all.
        """
        same = [call for call in self._by_key.get(canonical(made), ()) if owner in (None, call.owner)]
        if same:
            best = min(same, key=_precedence)
            rivals = [call for call in same if call.progress < Progress.ANSWERED] or same
            again = best.progress is not Progress.OUTSTANDING
            return Match(best, _of_others(best, rivals), again=again, near=False)
        near = [
            (-alike, call.number, call)
            for call in self._by_name.get(made.name, ())
            if owner in (None, call.owner) and call.progress is Progress.OUTSTANDING
            if (alike := _alike(call.asked.arguments, made.arguments)) > 0
        ]
        if not near:
            return None
        most, _, best = min(near)
        return Match(best, _of_others(best, [c for alike, _, c in near if alike == most]), False, near=True)

    def begin(self, call: Call) -> None:
        """A request that makes the call has begun to wait or to be executed."""
        call.requests += 1
        if call.progress is not Progress.ANSWERED:
            self._move(call, Progress.UNDER_WAY)

    def end(self, call: Call, *, executed: bool, answered: bool) -> None:
        """Such a request has ended. One that was never executed leaves the call as outstanding as it was."""
        call.requests -= 1
        call.executed = call.executed or executed
        if answered:
            self._move(call, Progress.ANSWERED)
        elif call.progress is Progress.UNDER_WAY and call.requests == 0:
            self._move(call, Progress.FAILED if call.executed else Progress.OUTSTANDING)

    def outstanding(self) -> Iterator[Call]:
        """Calls that the harness has not made."""
        for calls in self._by_key.values():
            yield from (call for call in calls if call.progress is Progress.OUTSTANDING)

    def _move(self, call: Call, progress: Progress) -> None:
        call.progress = progress
        call.number = next(self._numbers)


def _precedence(call: Call) -> tuple[Progress, int]:
    return call.progress, call.number


def _of_others(best: Call, rivals: Iterable[Call]) -> bool:
    return any(call.owner != best.owner for call in rivals)


def _alike(asked: Any, made: Any) -> float:
    """How many arguments are the same; half of one where there are none to be compared, 0 for no likeness."""
    if not (isinstance(asked, dict) and isinstance(made, dict)):
        return 0
    if not asked or not made:
        return 0.5
    return sum(1 for name, value in asked.items() if name in made and made[name] == value)
