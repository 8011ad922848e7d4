"""Of two workers drawn at random, the one with fewer requests in flight."""

from collections.abc import Sequence
from random import Random

from coresched.lab.simulator.routers.router import Fleet, Router


class PowerOfTwo(Router):
    """power_of_two of smg, sglang-router and vllm-router; Mitzenmacher (2001). The first drawn wins a tie.

    With two workers it is the least loaded. Left out: loads that those routers may poll from the engines.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._workers = range(fleet.workers)
        self._random = Random(f"power-of-two/{fleet.seed}")

    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        drawn = self._random.sample(self._workers, min(2, len(self._workers)))
        return min(drawn, key=in_flight.__getitem__)
