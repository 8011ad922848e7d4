"""An order at one worker: the worker's samples to its requests, and what each pass costs."""

from collections.abc import Callable, Sequence

from coresched.lab.simulator.model import StepTimes
from coresched.lab.simulator.orders.order import Order, Request
from coresched.lab.simulator.workload import RequestColumns


class OrderedQueue:
    """Both simulated workers speak to their plain order through this.

    ``match(sample)`` asks the worker's cache for the hit of a sample's turn, and makes its entry the newest.
    """

    def __init__(
        self, order: Order, columns: RequestColumns, times: StepTimes, match: Callable[[int], int]
    ) -> None:
        self._order = order
        self._columns = columns
        self._times = times
        self._match = match
        self._requests: dict[int, Request] = {}
        self._asked_s = 0.0

    def arrived(self, sample: int, turn: int, now_s: float) -> None:
        columns = self._columns
        request = Request(
            sample,
            columns.labels[sample],
            now_s,
            columns.prompt_tokens[turn],
            columns.group[sample],
            columns.shared_tokens[sample],
        )
        self._requests[sample] = request
        self._order.arrived(request)

    def arrange(self, samples: Sequence[int], now_s: float) -> tuple[Sequence[int], float]:
        """The waiting samples in the order's order, and what that cost, in seconds."""
        self._asked_s = 0.0
        order = self._order.arrange([self._requests[sample] for sample in samples], self._prefix_hit, now_s)
        if order is None:
            return samples, self._asked_s
        return [request.sample for request in order], self._asked_s + self._times.queue_entry_s * len(samples)

    def admitted(self, sample: int, now_s: float) -> None:
        self._order.admitted(self._requests[sample], now_s)

    def prefilled(self, tokens: int) -> None:
        self._order.prefilled(tokens)

    def ended(self, sample: int, now_s: float) -> None:
        self._order.ended(self._requests.pop(sample), now_s)

    def _prefix_hit(self, request: Request) -> int:
        hit = self._match(request.sample)
        self._asked_s += self._times.match_s + self._times.match_token_s * hit
        return hit
