"""The orders of this folder by name."""

from collections.abc import Callable, Mapping
from typing import Final

from coresched.lab.simulator.model import StepTimes
from coresched.lab.simulator.orders.hrrn import HighestResponseRatio
from coresched.lab.simulator.orders.order import Order
from coresched.lab.simulator.orders.peek import Peek
from coresched.lab.simulator.orders.plas import ProgramAttainedService
from coresched.lab.simulator.orders.program_fcfs import ProgramFcfs
from coresched.lab.simulator.orders.queue import OrderedQueue
from coresched.lab.simulator.orders.routing_key import RoutingKey
from coresched.lab.simulator.orders.shortest_prefill_first import ShortestPrefillFirst
from coresched.lab.simulator.workload import RequestColumns

PLAIN_ORDERS: Final[Mapping[str, Callable[[], Order]]] = {
    "hrrn": HighestResponseRatio,
    "shortest-prefill-first": ShortestPrefillFirst,
    "routing-key": RoutingKey,
    "plas": ProgramAttainedService,
    "peek": Peek,
    "program-fcfs": ProgramFcfs,
}
"""Each makes the order of one worker."""


def ordered_queue(
    policy: str, columns: RequestColumns, times: StepTimes, match: Callable[[int], int]
) -> OrderedQueue | None:
    """The order of one worker in front of its queue, see `OrderedQueue`; None for those that have a twin."""
    order = PLAIN_ORDERS.get(policy)
    return None if order is None else OrderedQueue(order(), columns, times, match)
