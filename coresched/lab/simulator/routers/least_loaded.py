"""Every turn to the worker with the fewest requests in flight, the first of several."""

from collections.abc import Sequence

from coresched.lab.simulator.routers.loads import least_loaded
from coresched.lab.simulator.routers.router import Fleet, Router


class LeastLoaded(Router):
    """smg's least_load and nginx's least_conn. Left out: engine-reported loads, of which smg can make use."""

    def __init__(self, fleet: Fleet) -> None:
        pass

    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        return least_loaded(in_flight)
