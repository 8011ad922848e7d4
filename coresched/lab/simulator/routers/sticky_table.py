"""A trajectory stays on its worker, unless that is far above the least loaded and moving is cheap."""

from collections.abc import Sequence
from typing import Final

from coresched.lab.simulator.routers.loads import least_loaded
from coresched.lab.simulator.routers.router import Fleet, Router

ABS_THRESHOLD: Final = 8
REL_THRESHOLD: Final = 2.0
MOST_BODY_BYTES: Final = 32 * 1024
TOKEN_BYTES: Final = 4


class StickyTable(Router):
    """vllm-router's sticky_table (src/policies/sticky_table.rs; not in release 0.1.17).

    The first turn goes to the least loaded, of several to the one with the fewest trajectories. A later turn
    moves to the least loaded, for good, iff its worker has at least 8 requests more and twice as many, and
    its body at most 32 KiB. Simplified: a token is 4 bytes of the body. Left out: polled loads; the expiry of
    sessions that are unused for half an hour, though a trajectory that has ended still counts until then.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._trajectories = [0] * fleet.workers
        self._worker_of: dict[int, int] = {}

    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        coolest = least_loaded(in_flight)
        lowest = in_flight[coolest]
        last = self._worker_of.get(sample)
        if last is None:
            worker = min(range(len(in_flight)), key=lambda w: (in_flight[w], self._trajectories[w]))
        else:
            load = in_flight[last]
            is_overloaded = load - lowest >= ABS_THRESHOLD and load >= REL_THRESHOLD * max(lowest, 1)
            is_cheap = prompt_tokens * TOKEN_BYTES <= MOST_BODY_BYTES
            worker = coolest if is_overloaded and is_cheap else last
            self._trajectories[last] -= 1
        self._trajectories[worker] += 1
        self._worker_of[sample] = worker
        return worker
