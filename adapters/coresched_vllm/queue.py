"""vLLM's waiting queue as a list that a policy can order in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any


class WaitingQueue:
    """The methods of vLLM's RequestQueue. Preempted requests come first, where vLLM puts them; then the rest.

    A preempted request has lost its blocks and holds partial output, so vLLM resumes it before anything
    else, the earliest first; a policy leaves that alone. ``is_preempted(request)`` is asked where requests
    return to the front: one that was only passed over goes back among those that the policy orders.
    """

    def __init__(self, is_preempted: Callable[[Any], bool]) -> None:
        self._is_preempted = is_preempted
        self._preempted: list[Any] = []
        self.ordered: list[Any] = []
        """The requests that a policy puts into its order, in place."""
        self._held_back: list[Any] = []

    @property
    def preempted(self) -> list[Any]:
        return self._preempted

    @contextmanager
    def holding_back(self, count: int) -> Iterator[None]:
        """Within, the last ``count`` of `ordered` are there but not offered; after it they are as before."""
        if not count:
            yield
            return
        self._held_back, self.ordered[-count:] = self.ordered[-count:], []
        try:
            yield
        finally:
            self.ordered += self._held_back
            self._held_back = []

    def add_request(self, request: Any) -> None:
        self.ordered.append(request)

    def peek_request(self) -> Any:
        if not self:
            raise IndexError("peek from an empty queue")
        return (self._preempted or self.ordered)[0]

    def pop_request(self) -> Any:
        if not self:
            raise IndexError("pop from an empty queue")
        return (self._preempted or self.ordered).pop(0)

    def prepend_request(self, request: Any) -> None:
        (self._preempted if self._is_preempted(request) else self.ordered).insert(0, request)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Each to the front in turn, so the last of ``requests`` is first then, as in vLLM's own queue."""
        for request in requests:
            self.prepend_request(request)

    def remove_request(self, request: Any) -> None:
        """Raises ValueError for one that is not there."""
        for held in (self._preempted, self._held_back):
            if request in held:
                held.remove(request)
                return
        self.ordered.remove(request)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Those of ``requests`` that are there."""
        removed = set(requests)
        for held in (self._preempted, self.ordered, self._held_back):
            held[:] = [request for request in held if request not in removed]

    def __bool__(self) -> bool:
        """Whether there is one to offer."""
        return bool(self._preempted or self.ordered)

    def __len__(self) -> int:
        return len(self._preempted) + len(self.ordered) + len(self._held_back)

    def __iter__(self) -> Iterator[Any]:
        return chain(self._preempted, self.ordered, self._held_back)
