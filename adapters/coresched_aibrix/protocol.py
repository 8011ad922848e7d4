"""AIBrix's external replica selection, routing.aibrix.ai/v1alpha1: the request, and the two answers we give.

After its OpenAPI contract, docs/source/_static/openapi/external-replica-selection-v1alpha1.yaml in
vllm-project/aibrix. Fields of a request that the contract does not name are passed over, as it wants.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

MEDIA_TYPE: Final = "application/vnd.aibrix.external-routing+json;version=v1alpha1"
"""Of requests and decisions. AIBrix takes no answer with another one for a decision."""

_API_VERSION: Final = "routing.aibrix.ai/v1alpha1"

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
MOST: Final = 1024
"""Of candidates in a request, and of ports of one: all wait while a ring of them is made, 0.4 s long."""

_Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Metrics(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """What AIBrix's cache knew of a pod; only what AIBRIX_EXTERNAL_ROUTER_CANDIDATE_METRICS lists."""

    running_requests: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] | None = None
    """Requests in flight on the pod, over all its ports and models; None where AIBrix had no count."""


_NO_METRICS: Final = Metrics()


class Candidate(msgspec.Struct, gc=False):
    """A pod that may take the request."""

    id: _Id
    """Namespace, slash, name of the pod."""
    ports: Annotated[list[_Port], msgspec.Meta(min_length=1, max_length=MOST)]
    metrics: Metrics = _NO_METRICS


class Metadata(msgspec.Struct, rename="camel"):
    request_id: _Id


class PolicyContext(msgspec.Struct):
    attributes: dict[str, str] = {}


class Spec(msgspec.Struct, rename="camel"):
    model: Annotated[str, msgspec.Meta(min_length=1)]
    policy_mode: Literal["Advisory", "Authoritative"]
    candidates: Annotated[list[Candidate], msgspec.Meta(min_length=1, max_length=MOST)]
    policy_context: PolicyContext = msgspec.field(default_factory=PolicyContext)


class SelectionRequest(msgspec.Struct, rename={"api_version": "apiVersion"}):
    """A ReplicaSelectionRequest."""

    api_version: Literal["routing.aibrix.ai/v1alpha1"]
    kind: Literal["ReplicaSelectionRequest"]
    metadata: Metadata
    spec: Spec


_decoder = msgspec.json.Decoder(SelectionRequest)


def selection_request(body: bytes) -> SelectionRequest:
    """The request of a POST. Raises ValueError, which names the field, if it is not as the contract says."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the body must be a ReplicaSelectionRequest of {_API_VERSION}: {error}") from None


def selected(request: SelectionRequest, pod: str, port: int) -> bytes:
    """The body that sends the request to this port of this candidate."""
    return _response(request, {"decision": "Selected", "target": {"id": pod, "port": port}})


def no_decision(request: SelectionRequest, reason: str) -> bytes:
    """The body that leaves the request to AIBrix's fallback. It may do so in the mode Advisory only."""
    return _response(request, {"decision": "NoDecision", "reason": reason})


def _response(request: SelectionRequest, status: dict[str, object]) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": _API_VERSION,
            "kind": "ReplicaSelectionResponse",
            "metadata": {"requestId": request.metadata.request_id},
            "status": status,
        }
    )


def problem(status: int, detail: str) -> bytes:
    """The body of an answer that is no decision, application/problem+json."""
    return msgspec.json.encode({"title": "no decision", "status": status, "detail": detail})
