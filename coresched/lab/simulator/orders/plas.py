"""The trajectories that were served least first, in bands, and with them who waited far longer than that."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from coresched.lab.simulator.orders.order import Order, PrefixHit, Request

BOUNDS_S: Final = tuple(2.0**exponent for exponent in range(11))
"""Of the queues after the first: 1 s to 1,024 s of service."""
STARVED: Final = 8.0
"""beta: waited over served, from which a request goes to the first queue."""


@dataclass
class _Program:
    """A trajectory's turns that have ended, in seconds."""

    waited_s: float = 0.0
    served_s: float = 0.0


@dataclass
class _Call:
    """A turn in its queue."""

    program: _Program
    queue: int
    joined_s: float
    waits_since_s: float
    served_since_s: float = 0.0


class ProgramAttainedService(Order):
    """PLAS of Autellix, arXiv:2502.13965, Algorithm 1.

    A turn joins the queue whose bounds its trajectory's service so far lies between; within a queue it is
    first come first served. When its trajectory's wait over its service, both with this turn's, reaches beta,
    it goes to the end of the first queue and its own wait counts from there. It asks for no prefix hits.
    The paper gives neither K nor bounds nor beta: 12 queues, doubling from 1 s, are ours, beta = 8 is that of
    kungfu-team/autellix (vllm/v1/core/sched/autellix). Simplified: service is from admission to the end.
    Left out: preemption, and with it demotion by quantum, which moves running turns only.
    """

    def __init__(self) -> None:
        self._programs: dict[str, _Program] = {}
        self._calls: dict[Request, _Call] = {}

    def arrived(self, request: Request) -> None:
        program = _Program()
        if request.label is not None:
            program = self._programs.setdefault(request.label, program)
        queue = bisect_right(BOUNDS_S, program.served_s)
        self._calls[request] = _Call(program, queue, request.arrived_s, request.arrived_s)

    def arrange(self, waiting: Sequence[Request], prefix_hit: PrefixHit, now_s: float) -> Sequence[Request]:
        for request in waiting:
            call = self._calls[request]
            waited_s = call.program.waited_s + now_s - call.waits_since_s
            # Who is not in the first queue was served.
            if call.queue and waited_s >= STARVED * call.program.served_s:
                call.queue, call.joined_s, call.waits_since_s = 0, now_s, now_s

        def key(request: Request) -> tuple[int, float]:
            call = self._calls[request]
            return call.queue, call.joined_s

        return sorted(waiting, key=key)

    def admitted(self, request: Request, now_s: float) -> None:
        call = self._calls[request]
        call.program.waited_s += now_s - call.waits_since_s
        call.served_since_s = now_s

    def ended(self, request: Request, now_s: float) -> None:
        call = self._calls.pop(request)
        call.program.served_s += now_s - call.served_since_s
