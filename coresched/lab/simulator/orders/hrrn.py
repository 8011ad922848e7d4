"""The highest ratio of prompt tokens computed since arrival to prompt tokens still to compute."""

from collections.abc import Sequence

from coresched.lab.simulator.orders.hits import all_hits, followers
from coresched.lab.simulator.orders.order import LONG_QUEUE, Order, PrefixHit, Request


class HighestResponseRatio(Order):
    """hrrn of SGLang 0.5.23, managers/schedule_policy.py.

    ``1 + wait / prefill time`` of the classic rule, with the wait counted in the tokens of prefill batches
    since the arrival: ``(now - at arrival) / (prompt - hit)``, the highest first. Cold prompts that begin
    like one before them go last. Every request is asked in every pass, up to 128 waiting; beyond these the
    queue is left as it is. Simplified: ties keep their order (SGLang's: that of random ids).
    """

    def __init__(self) -> None:
        self._tokens = 0
        self._at_arrival: dict[Request, int] = {}

    def arrived(self, request: Request) -> None:
        self._at_arrival[request] = self._tokens

    def admitted(self, request: Request, now_s: float) -> None:
        del self._at_arrival[request]

    def prefilled(self, tokens: int) -> None:
        self._tokens += tokens

    def arrange(
        self, waiting: Sequence[Request], prefix_hit: PrefixHit, now_s: float
    ) -> Sequence[Request] | None:
        if len(waiting) > LONG_QUEUE:
            return None
        hits = all_hits(waiting, prefix_hit)
        put_off = followers(waiting, hits)

        def key(request: Request) -> tuple[bool, float]:
            if request in put_off:
                return True, 0.0
            # A hit spares at most all but the last token, so there is one to compute.
            uncached = request.prompt_tokens - hits[request]
            return False, -(self._tokens - self._at_arrival[request]) / uncached

        return sorted(waiting, key=key)
