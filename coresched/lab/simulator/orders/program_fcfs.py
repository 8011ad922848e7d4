"""Trajectories in the order of their first turn."""

from collections.abc import Sequence

from coresched.lab.simulator.orders.order import Order, PrefixHit, Request


class ProgramFcfs(Order):
    """The queue of Continuum, arXiv:2511.02230; michiLXY03/vllm-continuum-plugin, scheduler.py.

    Ascending arrival of the trajectory's first turn, then of this one; it asks for no prefix hits. Left out:
    that trajectories whose cache is pinned go first, as the pinning for an expected tool time is a matter of
    eviction. A request without a label is a trajectory of its own.
    """

    def __init__(self) -> None:
        self._first_s: dict[str, float] = {}

    def arrived(self, request: Request) -> None:
        if request.label is not None:
            self._first_s.setdefault(request.label, request.arrived_s)

    def arrange(self, waiting: Sequence[Request], prefix_hit: PrefixHit, now_s: float) -> Sequence[Request]:
        def key(request: Request) -> tuple[float, float]:
            first_s = request.arrived_s if request.label is None else self._first_s[request.label]
            return first_s, request.arrived_s

        return sorted(waiting, key=key)
