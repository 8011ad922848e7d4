"""Where one model call goes: its label, its worker, and who counts it in flight. For any HTTP client."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from coresched.client.label import check_header_text, label_in_scope, worker_in_scope
from coresched.client.shared import AsyncRouter, Flight, Router, SharedRouter
from coresched.core.checks import check_label
from coresched.core.ring import LoadBoundedRouter
from coresched.core.sticky import StickyBoundedRouter

R = TypeVar("R", bound="Router | AsyncRouter")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a call asks for: the worker of its label or, inside a routed turn, that turn's worker."""

    label: str
    turn_worker: str | None


def claim(header: str, explicit: str | None) -> Claim:
    """The claim of a call made here and now; `explicit` is the label in its header, if it has one.

    Raises ValueError without a label, or with one that the header cannot hold.
    """
    if explicit is not None:
        label = check_label(explicit, header)
    else:
        scoped = label_in_scope()
        if scoped is None:
            raise ValueError(
                "a model call needs a trajectory label to be routed, and none is in scope: make the call "
                'inside `with coresched.label("..."):` or inside an open turn of a Batch, '
                f"or send the label in the header {header}"
            )
        label = check_header_text(scoped, "label")
    return Claim(label, worker_in_scope(label))


def _left_to_the_turn(worker: str) -> None:
    """The turn counts this request, so its flight has nothing to release."""


def flight_of_turn(claim: Claim, worker: str, workers: Collection[str]) -> Flight:
    """The flight of a call that an open turn routed and counts. ValueError: its worker is unknown here."""
    if worker not in workers:
        raise ValueError(
            f"the open turn of {claim.label!r} was routed to the worker {worker!r}, which is not among the "
            f"transport's workers {sorted(workers)!r}; give the batch and the transport the same names"
        )
    return Flight(worker, _left_to_the_turn)


def check_known(flight: Flight, workers: Collection[str]) -> Flight:
    """The flight that a router chose, ended with a ValueError if its worker has no URL."""
    if flight.worker not in workers:
        flight.end()
        raise ValueError(
            f"the router chose the worker {flight.worker!r}, which is not among the transport's workers "
            f"{sorted(workers)!r}; give the router and the transport the same names"
        )
    return flight


def may_try_another(claim: Claim, tried: Collection[str], workers: Collection[str]) -> bool:
    """Whether a call without connection goes to a second worker; in a turn not, which counts the first."""
    return claim.turn_worker is None and len(tried) == 1 and len(workers) > 1


def own_or_given(
    workers: Collection[str],
    weights: Mapping[str, float] | None,
    router: R | None,
    load_bound: float,
    virtual_nodes: int,
    slack: int,
) -> R | SharedRouter:
    """The router given, or a new one over the workers.

    Raises TypeError for what is no router, ValueError for options that a given router already has, names that
    differ from those of a given SharedRouter, a weight without worker, no workers, and for what
    LoadBoundedRouter refuses.
    """
    if router is not None:
        if not hasattr(router, "route") or isinstance(router, (LoadBoundedRouter, StickyBoundedRouter)):
            raise TypeError(
                'router must be a router, such as SharedRouter(workers, router="sticky-bounded"), '
                f"got {router!r} of type {type(router).__name__}"
            )
        if weights is not None or (load_bound, virtual_nodes, slack) != (1.25, 128, 0):
            raise ValueError(
                "weights, load_bound, virtual_nodes and slack belong to the router; leave them out beside "
                "router="
            )
        if isinstance(router, SharedRouter) and set(router.workers()) != set(workers):
            raise ValueError(
                f"workers must have the names of the router's workers {sorted(router.workers())!r}, "
                f"got {sorted(workers)!r}"
            )
        return router
    if not (weights is None or isinstance(weights, Mapping)):
        raise TypeError(f"weights must map names of workers to numbers, got {weights!r}")
    shares = dict.fromkeys(workers, 1.0)
    for name, weight in (weights or {}).items():
        if name not in shares:
            raise ValueError(f"weights must name workers among {sorted(workers)!r}, got {name!r}")
        shares[name] = weight
    return SharedRouter(shares, load_bound=load_bound, virtual_nodes=virtual_nodes, slack=slack)
