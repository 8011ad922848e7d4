"""Requests whose routing key most running ones have first, the others by key."""

from collections import Counter
from collections.abc import Sequence

from coresched.lab.simulator.orders.order import Order, PrefixHit, Request


class RoutingKey(Order):
    """routing-key of SGLang 0.5.23, managers/schedule_policy.py, with the label as the routing key.

    ``(0, -running requests of that key, key)`` for keys that run, ``(1, key)`` for the others; with none
    running the queue is left as it is. It asks for no prefix hits. A trajectory has one turn at a time, so
    that none that waits has a key that runs, and what is left of the rule is the order of the labels.
    Simplified: a request runs from its admission (SGLang: from the end of its last prefill chunk).
    """

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()

    def admitted(self, request: Request, now_s: float) -> None:
        if request.label:
            self._running[request.label] += 1

    def ended(self, request: Request, now_s: float) -> None:
        if request.label:
            self._running[request.label] -= 1
            if not self._running[request.label]:
                del self._running[request.label]

    def arrange(
        self, waiting: Sequence[Request], prefix_hit: PrefixHit, now_s: float
    ) -> Sequence[Request] | None:
        if not self._running:
            return None

        def key(request: Request) -> tuple[bool, int, str]:
            label = request.label or ""
            return label not in self._running, -self._running.get(label, 0), label

        return sorted(waiting, key=key)
