"""What the gateway counts of the inference requests it answers; the fleet counts where they go."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from coresched.gateway.refusal import RefusedError
from coresched.metrics.histogram import STAGE_S, Histogram


class Traffic:
    """Answers of workers and refusals of the gateway's own, since the start. For one thread.

    `clock` is monotonic, in seconds; an `arrived` is its time when the head of a request was there.
    """

    __slots__ = ("answers", "clock", "first_byte_s", "refused", "request_s")

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        self.first_byte_s = Histogram(STAGE_S)
        """From arrival to the first piece of the answer's body, or its end if it has none."""
        self.request_s = Histogram(STAGE_S)
        """From arrival to the end of the answer; of those that came to their end."""
        self.answers = [0] * 10
        """Answers of workers that began, by the first digit of the status."""
        self.refused: dict[tuple[int, str], int] = {}
        """Requests of any kind that the gateway refused, by status and code."""

    def answered(self, status: int) -> None:
        """A worker's answer began."""
        self.answers[status // 100] += 1

    def first_byte(self, arrived: float) -> None:
        """The first piece of a streamed body is there."""
        self.first_byte_s.observe(self.clock() - arrived)

    def ended(self, arrived: float) -> None:
        """A streamed body is at its end."""
        self.request_s.observe(self.clock() - arrived)

    def whole(self, arrived: float) -> None:
        """An answer came in one piece, which is its first and its end."""
        took_s = self.clock() - arrived
        self.first_byte_s.observe(took_s)
        self.request_s.observe(took_s)

    def refuse(self, refused: RefusedError) -> None:
        """The gateway answered instead of a worker."""
        key = (refused.status, refused.code)
        self.refused[key] = self.refused.get(key, 0) + 1
