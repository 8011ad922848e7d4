"""Whether the Ray at hand has the places that the request router enters, in the form it was written for."""

from __future__ import annotations

from coresched_engine.places import Place
from coresched_harness.compatibility import Fit, uncalled

TESTED_VERSION = "2.60.0"

_ROUTER = "ray.serve.request_router.RequestRouter"

PLACES = (
    Place(f"{_ROUTER}.initialize_state", ("self",)),
    Place(f"{_ROUTER}.update_replicas", ("self", "replicas")),
    Place(f"{_ROUTER}.choose_replicas", ("self", "candidate_replicas", "pending_request")),
    Place(f"{_ROUTER}._choose_replica_for_request", ("self", "pending_request")),
    Place(f"{_ROUTER}._get_pending_request_matching_internal_request_id", ("self", "request_metadata")),
    Place(f"{_ROUTER}.on_send_request", ("self", "replica_id")),
    Place(f"{_ROUTER}.on_request_completed", ("self", "replica_id", "internal_request_id")),
    Place(f"{_ROUTER}.on_replica_actor_died", ("self", "replica_id")),
    Place(
        "ray.serve._private.controller.ServeController._get_replica_ranks_mapping", ("self", "deployment_id")
    ),
)

_SERVE = "ray.serve._private.router.AsyncioRouter"
_CALLS = {
    f"{_SERVE}._route_and_send_request_once": ("_choose_replica_for_request", "on_send_request"),
    f"{_SERVE}._pick_and_reserve_replica": ("_choose_replica_for_request",),
}
"""Functions that must call the places by these names, or entering them has no effect."""


def missing() -> list[str]:
    """What the request router needs and the Ray at hand lacks, a phrase each."""
    found = [reason for place in PLACES for reason in place.differences()]
    return found + list(uncalled(_CALLS))


FIT = Fit("ray", TESTED_VERSION, f"pip install 'ray[serve]=={TESTED_VERSION}'", missing)
