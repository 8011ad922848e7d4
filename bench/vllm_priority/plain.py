"""RP on vLLM's waiting queue in plain Python: one sort with a key function, and an OrderedDict."""

from collections.abc import Callable
from typing import Any

from bench.peers.prefix import LabelSet


class SortedQueue(LabelSet):
    """Ascending ``(0, -l, t)`` for labels in the label set and ``(1, 0, t)`` for the others.

    As one writes it into a scheduler for speed: the attributes are read where they are, and between passes
    nothing is kept but the hit, on the request.
    """

    def __init__(self, label_capacity: int, prefix_hit: Callable[[Any], int]) -> None:
        super().__init__(label_capacity)
        self._prefix_hit = prefix_hit

    def order(self, queue: Any) -> None:
        """Sort vLLM's own queue, a deque; ``prefix_hit`` is asked once in the life of a request."""
        labels, prefix_hit = self._labels, self._prefix_hit

        def key(request: Any) -> tuple[int, int, float]:
            if request.session_id not in labels:
                return 1, 0, request.arrival_time
            try:
                hit = request.plain_hit
            except AttributeError:
                hit = request.plain_hit = prefix_hit(request)
            return 0, -hit, request.arrival_time

        ordered = sorted(queue, key=key)
        queue.clear()
        queue.extend(ordered)
