"""What an order of a worker's waiting queue is: it knows what an engine's scheduler can know."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

LONG_QUEUE: Final = 128
"""Waiting requests beyond which SGLang's orders that ask for every prefix hit leave the queue as it is."""


@dataclass(frozen=True, eq=False, slots=True)
class Request:
    """One turn at a worker, from its arrival to its end. How much it will generate is not known."""

    sample: int
    """The worker's own number of it, which says nothing of the request."""
    label: str | None
    arrived_s: float
    prompt_tokens: int
    group: int
    """Prompts of one group begin with the same ``shared_tokens`` tokens, as the prompts themselves show."""
    shared_tokens: int


PrefixHit = Callable[[Request], int]
"""The prompt tokens that the cache has; asking costs scheduling time and makes the entry the newest."""


class Order(ABC):
    """The order of one worker's waiting queue. Times are virtual seconds.

    What a pass costs is what SGLang's own orders cost: ``match_s`` and ``match_token_s`` for each prefix hit
    asked, and ``queue_entry_s`` for each waiting request, unless the queue is left as it is.
    """

    @abstractmethod
    def arrange(
        self, waiting: Sequence[Request], prefix_hit: PrefixHit, now_s: float
    ) -> Sequence[Request] | None:
        """The waiting requests, those to be admitted first in front; None leaves them as they are.

        ``waiting`` is the last pass's order without those admitted, then the arrivals since. Called before
        each prefill batch, with at least one request.
        """

    def arrived(self, request: Request) -> None:  # noqa: B027  # most need no such news
        """The request joins the queue."""

    def admitted(self, request: Request, now_s: float) -> None:  # noqa: B027
        """The request has left the queue; its prefill begins."""

    def prefilled(self, tokens: int) -> None:  # noqa: B027
        """A prefill batch of so many new prompt tokens was made."""

    def ended(self, request: Request, now_s: float) -> None:  # noqa: B027
        """The request has its last token."""
