"""The ranks of a deployment's replicas, which Serve's controller keeps."""

from __future__ import annotations

import asyncio
from typing import Any

ANSWER_WITHIN = 5.0
"""Seconds."""


async def replica_ranks(deployment: Any) -> dict[str, int]:
    """Rank by unique id of the replica, of a `DeploymentID`.

    A replacement gets the rank of the replica that it replaces, and ranks are counted from 0 without gaps,
    except for a while after replicas went away. Raises what Ray raises, AttributeError where this Serve has
    no such question, and TimeoutError.
    """
    import ray
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    asked = controller._get_replica_ranks_mapping.remote(deployment)
    ranks = await asyncio.wait_for(asked, ANSWER_WITHIN)
    return {unique_id: rank.rank for unique_id, rank in ranks.items()}
