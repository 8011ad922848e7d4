"""The calls of the Router service, each carried out once however often it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from google.protobuf.message import Message

from coresched.service.answers import REMEMBERED_ANSWERS, AnswerMemory
from coresched.service.table import UNARY, Flight, Owner, RoutingTable
from coresched.v1 import router_pb2 as pb


class _Call(Protocol):
    request_id: str


C = TypeVar("C", bound=_Call)
M = TypeVar("M", bound=Message)

# One of each for all answers: an empty message of one's own would take most of the memory of an answer.
_REGISTERED = pb.RegisterWorkerResponse()
_RELEASED = pb.ReleaseResponse()


class RouterCalls:
    """Requests to answers. A refused call raises RefusedError and is not remembered: it changed nothing."""

    def __init__(self, table: RoutingTable, remembered: int = REMEMBERED_ANSWERS) -> None:
        self._table = table
        self._answers: AnswerMemory[Flight | Message] = AnswerMemory(remembered)

    def register_worker(self, call: pb.RegisterWorkerRequest) -> pb.RegisterWorkerResponse:
        return self._once(call, self._register)

    def remove_worker(self, call: pb.RemoveWorkerRequest) -> pb.RemoveWorkerResponse:
        return self._once(
            call, lambda call: pb.RemoveWorkerResponse(in_flight=self._table.remove(call.worker))
        )

    def list_workers(self, call: pb.ListWorkersRequest) -> pb.ListWorkersResponse:
        return pb.ListWorkersResponse(
            workers=[
                pb.Worker(
                    worker=name,
                    weight=entry.weight,
                    in_flight=entry.in_flight,
                    state=pb.WORKER_STATE_ROUTABLE if entry.routable else pb.WORKER_STATE_REMOVED,
                )
                for name, entry in self._table.workers().items()
            ],
            load_bound=self._table.load_bound,
            virtual_nodes=self._table.virtual_nodes,
        )

    def route(self, call: pb.RouteRequest, owner: Owner = UNARY) -> pb.RouteResponse:
        """Place a request, which then belongs to `owner`, also if this call retries one made elsewhere."""
        flight = cast("Flight | None", self._answers.find(call.request_id, call))
        if flight is None:
            flight = self._table.route(call.label, call.exclude, owner=owner, request_id=call.request_id)
            self._answers.keep(call.request_id, call, flight)
        else:
            self._table.hand_over(flight, owner)
        return pb.RouteResponse(worker=flight.worker)

    def release(self, call: pb.ReleaseRequest, owner: Owner = UNARY) -> pb.ReleaseResponse:
        def carry_out(call: pb.ReleaseRequest) -> pb.ReleaseResponse:
            self._table.release(call.label, call.worker, owner=owner)
            return _RELEASED

        return self._once(call, carry_out)

    def end_stream(self, owner: Owner) -> None:
        """Release what the stream left in flight, and forget the answers: a retry elsewhere routes anew."""
        for flight in self._table.release_all(owner):
            self._answers.forget(flight.request_id, flight)

    def _register(self, call: pb.RegisterWorkerRequest) -> pb.RegisterWorkerResponse:
        self._table.register(call.worker, call.weight if call.HasField("weight") else 1.0)
        return _REGISTERED

    def _once(self, call: C, carry_out: Callable[[C], M]) -> M:
        message = cast(Message, call)
        # The digest in the memory covers the kind of the call, and so of its answer.
        answer = cast("M | None", self._answers.find(call.request_id, message))
        if answer is None:
            answer = carry_out(call)
            self._answers.keep(call.request_id, message, answer)
        return answer
