"""The fewest prompt tokens still to compute first."""

from collections.abc import Sequence

from coresched.lab.simulator.orders.hits import all_hits, followers
from coresched.lab.simulator.orders.order import Order, PrefixHit, Request


class ShortestPrefillFirst(Order):
    """shortest-prefill-first of SGLang 0.5.23, managers/schedule_policy.py.

    Ascending prompt less hit, then arrival; cold prompts that begin like one before them go last. Every
    request is asked in every pass, however many wait. Left out: capping the chunk of a long prefill that is
    under way to let shorter ones in beside it.
    """

    def arrange(self, waiting: Sequence[Request], prefix_hit: PrefixHit, now_s: float) -> Sequence[Request]:
        hits = all_hits(waiting, prefix_hit)
        put_off = followers(waiting, hits)
        return sorted(
            waiting,
            key=lambda request: (
                request in put_off,
                request.prompt_tokens - hits[request],
                request.arrived_s,
            ),
        )
