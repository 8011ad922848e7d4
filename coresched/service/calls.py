"""The calls of the Router service, each carried out once however often it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

import grpc
from google.protobuf.message import Message

from coresched.service.answers import REMEMBERED_ANSWERS, AnswerMemory
from coresched.service.batches.facts import WorkerDrained, WorkerRemoved
from coresched.service.entry import Standing
from coresched.service.identity import current_caller, current_tenant
from coresched.service.refusal import RefusedError
from coresched.service.table import UNARY, Flight, Owner, RoutingTable
from coresched.service.workers import REGISTERED, RouterAnswers, WorkerRecord
from coresched.v1 import router_pb2 as pb


class _Call(Protocol):
    request_id: str


C = TypeVar("C", bound=_Call)
M = TypeVar("M", bound=Message)

# One for all answers: an empty message of one's own would take most of the memory of an answer.
_RELEASED = pb.ReleaseResponse()

_STATES = {
    Standing.ROUTABLE: pb.WORKER_STATE_ROUTABLE,
    Standing.DRAINING: pb.WORKER_STATE_DRAINING,
    Standing.REMOVED: pb.WORKER_STATE_REMOVED,
}


class RouterCalls:
    """Requests to answers. A refused call raises RefusedError and is not remembered: it changed nothing.

    Workers are of all tenants, requests in flight and answers of the tenant whose call is being served.
    """

    def __init__(
        self,
        table: RoutingTable,
        remembered: int = REMEMBERED_ANSWERS,
        *,
        answers: RouterAnswers | None = None,
        record: WorkerRecord | None = None,
    ) -> None:
        """`answers` are those remembered from before a restart; `record` keeps what changes the workers."""
        self._table = table
        self._answers: RouterAnswers = AnswerMemory(remembered) if answers is None else answers
        self._record = WorkerRecord() if record is None else record
        self._unary = {"": UNARY}

    def register_worker(self, call: pb.RegisterWorkerRequest) -> pb.RegisterWorkerResponse:
        _require_managing()
        return self._once(call, self._register)

    def drain_worker(self, call: pb.DrainWorkerRequest) -> pb.DrainWorkerResponse:
        _require_managing()
        return self._once(call, self._drain)

    def remove_worker(self, call: pb.RemoveWorkerRequest) -> pb.RemoveWorkerResponse:
        _require_managing()
        return self._once(call, self._remove)

    async def recorded(self) -> None:
        """Return once all that changed the workers is durable. Refused: UNAVAILABLE if it cannot be."""
        await self._record.committed()

    def list_workers(self, call: pb.ListWorkersRequest) -> pb.ListWorkersResponse:
        imbalance = self._table.imbalance()
        return pb.ListWorkersResponse(
            workers=[
                pb.Worker(
                    worker=name,
                    weight=entry.weight,
                    in_flight=entry.in_flight,
                    state=_STATES[entry.standing],
                    routed=entry.routed,
                    spilled=entry.spilled,
                )
                for name, entry in self._table.workers().items()
            ],
            load_bound=self._table.load_bound,
            slack=self._table.slack,
            virtual_nodes=self._table.virtual_nodes,
            imbalance=imbalance.present,
            imbalance_s=imbalance.over_s,
            busy_s=imbalance.busy_s,
            router=self._table.router,
        )

    def route(self, call: pb.RouteRequest, owner: Owner | None = None) -> pb.RouteResponse:
        """Place a request, which then belongs to `owner`, also if this call retries one made elsewhere.

        Without an owner it belongs to the unary calls of the tenant.
        """
        return pb.RouteResponse(worker=self.placed(call, owner).worker)

    def placed(self, call: pb.RouteRequest, owner: Owner | None = None) -> Flight:
        """`route`, for whoever makes the answer itself."""
        owner = owner or self._unary_owner()
        request_id = call.request_id
        flight = cast("Flight | None", self._answers.find(request_id, call))
        if flight is None:
            flight = self._table.route(call.label, call.exclude, owner=owner, request_id=request_id)
            self._answers.keep(request_id, call, flight)
        else:
            self._table.hand_over(flight, owner)
        return flight

    def release(self, call: pb.ReleaseRequest, owner: Owner | None = None) -> pb.ReleaseResponse:
        request_id = call.request_id
        if self._answers.find(request_id, call) is None:
            self._table.release(call.label, call.worker, owner=owner or self._unary_owner())
            self._answers.keep(request_id, call, _RELEASED)
        return _RELEASED

    def hold(self, call: pb.HoldRequest, owner: Owner) -> None:
        """Count a request that was routed before this stream, on its worker; it then belongs to `owner`."""
        request_id = call.request_id
        flight = cast("Flight | None", self._answers.find(request_id, call))
        if flight is None:
            flight = self._table.hold(call.label, call.worker, owner=owner, request_id=request_id)
            self._answers.keep(request_id, call, flight)
        else:
            self._table.hand_over(flight, owner)

    def end_stream(self, owner: Owner) -> None:
        """Release what the stream left in flight, and forget the answers: a retry elsewhere routes anew.

        To be called as the tenant of the stream.
        """
        for flight in self._table.release_all(owner):
            self._answers.forget(flight.request_id, flight)

    def _register(self, call: pb.RegisterWorkerRequest) -> pb.RegisterWorkerResponse:
        self._table.register(call.worker, call.weight if call.HasField("weight") else None)
        self._record.registered(call, self._table.workers()[call.worker].weight)
        return REGISTERED

    def _drain(self, call: pb.DrainWorkerRequest) -> pb.DrainWorkerResponse:
        answer = pb.DrainWorkerResponse(in_flight=self._table.drain(call.worker))
        self._record.taken_off(WorkerDrained, call, answer.in_flight)
        return answer

    def _remove(self, call: pb.RemoveWorkerRequest) -> pb.RemoveWorkerResponse:
        answer = pb.RemoveWorkerResponse(in_flight=self._table.remove(call.worker))
        self._record.taken_off(WorkerRemoved, call, answer.in_flight)
        return answer

    def _unary_owner(self) -> Owner:
        tenant = current_tenant()
        owner = self._unary.get(tenant)
        if owner is None:
            owner = self._unary[tenant] = Owner.of_unary_calls()
        return owner

    def _once(self, call: C, carry_out: Callable[[C], M]) -> M:
        message = cast(Message, call)
        # The digest in the memory covers the kind of the call, and so of its answer.
        answer = cast("M | None", self._answers.find(call.request_id, message))
        if answer is None:
            answer = carry_out(call)
            self._answers.keep(call.request_id, message, answer)
        return answer


def _require_managing() -> None:
    if not current_caller().manages_workers:
        raise RefusedError(
            grpc.StatusCode.PERMISSION_DENIED,
            "",
            "workers are managed with a token that has manages_workers true, the one of this call has not",
        )
