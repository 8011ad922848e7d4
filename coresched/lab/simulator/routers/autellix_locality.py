"""Short prompts to the least loaded worker, long ones to the worker of their trajectory."""

from collections.abc import Sequence
from typing import Final

from coresched.lab.simulator.routers.loads import least_loaded
from coresched.lab.simulator.routers.router import Fleet, Router

SHORT_TOKENS: Final = 2048


class AutellixLocality(Router):
    """Autellix's data locality-aware load balancer, arXiv:2502.13965.

    A call of at most 2,048 tokens goes to the least used engine, a longer one to its program's, which is the
    least used at the first longer call. Simplified: used is requests in flight.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._worker_of: dict[int, int] = {}

    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        least = least_loaded(in_flight)
        return least if prompt_tokens <= SHORT_TOKENS else self._worker_of.setdefault(sample, least)
