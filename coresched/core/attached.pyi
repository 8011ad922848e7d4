from collections.abc import Callable
from typing import TypeVar

from coresched.core.prefix import LabelTiers, Waiting

_Request = TypeVar("_Request")

class AttachedOrder:
    def __init__(
        self,
        policy: LabelTiers,
        attribute: str,
        *,
        rank: str | None = None,
        highest_rank_first: bool = True,
    ) -> None: ...
    @property
    def policy(self) -> LabelTiers: ...
    @property
    def passes(self) -> int: ...
    @property
    def queries(self) -> int: ...
    @property
    def changed(self) -> int: ...
    def order(
        self,
        requests: list[_Request],
        enter: Callable[[_Request], Waiting],
        prefix_hit: Callable[[_Request], int] | None = None,
    ) -> bool: ...
