"""What smg says of its workers under GET /workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from coresched.errors import InputError


@dataclass(frozen=True, slots=True)
class Listing:
    """The workers of one model: whether each is healthy, by URL, in smg's order."""

    model: str
    healthy: Mapping[str, bool]


def read_listing(answer: httpx.Response, model: str | None) -> Listing:
    """The workers that serve the model; without a name, that of all workers.

    Raises InputError where it is no listing, one without such workers, or of several models and none named.
    """
    where = answer.request.url
    if answer.status_code != 200:
        raise InputError(
            f"{where} must list the workers of smg, it answered {answer.status_code}: {answer.text[:200]!r}; "
            "give the URL of smg itself, and headers={'Authorization': ...} if it asks for a key"
        )
    try:
        workers = {
            str(worker["url"]): (
                [str(served["id"]) for served in worker.get("models", ())] or [str(worker["model_id"])],
                bool(worker["is_healthy"]),
            )
            for worker in answer.json()["workers"]
            if worker["worker_type"] == "regular"
        }
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{where} must list workers as smg 1.13 does, got {answer.text[:200]!r} "
            f"({type(error).__name__}); use that release"
        ) from None
    if not workers:
        raise InputError(
            f"{where} lists no regular worker; start smg with --worker-urls, and wait until it has "
            "registered them"
        )
    served = sorted({name for models, _ in workers.values() for name in models})
    if model is None:
        if len(served) > 1:
            raise InputError(
                f"model must name one of the models behind smg, {served!r}; smg has a ring for each"
            )
        model = served[0]
    healthy = {url: up for url, (models, up) in workers.items() if model in models}
    if not healthy:
        raise InputError(
            f"{where} lists no worker for the model {model!r}, only for {served!r}; wait until smg has "
            "registered its workers, or name another model"
        )
    return Listing(model, healthy)
