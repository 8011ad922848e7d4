"""Replica selection requests as AIBrix's gateway sends them, for tests and the bench."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from coresched_aibrix.protocol import MEDIA_TYPE


def pods(count: int) -> list[str]:
    """Names as a Deployment gives them."""
    return [f"default/qwen-7b-6f9478d69f-{n:05x}" for n in range(count)]


def question(
    running: Mapping[str, int | None],
    *,
    request_id: str = "req-1",
    ports: Sequence[int] = (8000,),
    mode: str = "Advisory",
    attributes: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A request that names these pods with these counts; None where AIBrix had none."""
    candidates: list[dict[str, Any]] = []
    for pod, count in sorted(running.items()):
        candidate: dict[str, Any] = {"id": pod, "ports": list(ports)}
        if count is not None:
            candidate["metrics"] = {"runningRequests": count, "kvCacheUsage": 0.5}
        candidates.append(candidate)
    spec: dict[str, Any] = {"model": "qwen-7b", "policyMode": mode, "candidates": candidates}
    if attributes is not None:
        spec["policyContext"] = {"attributes": dict(attributes)}
    return {
        "apiVersion": "routing.aibrix.ai/v1alpha1",
        "kind": "ReplicaSelectionRequest",
        "metadata": {"requestId": request_id},
        "spec": spec,
    }


def sent(asked: Any, traceparent: str | None = None, **headers: str) -> dict[str, Any]:
    """The body and headers of the POST, as keywords of a client's call."""
    given = {"Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE}
    if traceparent is not None:
        given["traceparent"] = traceparent
    return {"data": json.dumps(asked).encode(), "headers": {**given, **headers}}
