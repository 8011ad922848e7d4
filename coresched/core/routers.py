"""The routers that may stand in front of workers, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, Protocol, get_args

from coresched.core.ring import LoadBoundedRouter
from coresched.core.sticky import StickyBoundedRouter

RouterName = Literal["lbch", "sticky-bounded"]
ROUTERS: Final[tuple[RouterName, ...]] = get_args(RouterName)
DEFAULT_VIRTUAL_NODES: Final = 128


class LabelRouter(Protocol):
    """What both routers do; see `LoadBoundedRouter`."""

    @property
    def load_bound(self) -> float: ...
    @property
    def slack(self) -> int: ...
    def route(self, label: str, exclude: Iterable[str] = ()) -> str: ...
    def order(self, label: str, exclude: Iterable[str] = ()) -> list[str]: ...
    def release(self, worker: str) -> None: ...
    def hold(self, worker: str) -> None: ...
    def settle(self, label: str, worker: str) -> None: ...
    def home(self, label: str) -> str | None: ...
    def forget(self, label: str) -> None: ...
    def loads(self) -> dict[str, int]: ...
    def workers(self) -> list[str]: ...
    def add_worker(self, name: str, weight: float = 1.0) -> None: ...
    def remove_worker(self, name: str) -> None: ...


def make_router(
    router: str,
    workers: Iterable[str] | Mapping[str, float],
    load_bound: float = 1.25,
    virtual_nodes: int = DEFAULT_VIRTUAL_NODES,
    slack: int = 0,
) -> LabelRouter:
    """The router of this name: "lbch", `LoadBoundedRouter`, or "sticky-bounded", `StickyBoundedRouter`.

    Raises ValueError for another name, and for virtual nodes, of which sticky-bounded has none; and what the
    router itself raises.
    """
    if router == "lbch":
        return LoadBoundedRouter(workers, load_bound, virtual_nodes, slack)
    if router != "sticky-bounded":
        raise ValueError(f"router must be one of {', '.join(ROUTERS)}, got {router!r}")
    if virtual_nodes != DEFAULT_VIRTUAL_NODES:
        raise ValueError(
            f"virtual_nodes is {virtual_nodes!r}, which is for a hash ring; leave it out with router "
            "sticky-bounded"
        )
    return StickyBoundedRouter(workers, load_bound, slack=slack)
