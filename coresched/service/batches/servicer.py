"""The Batches service over gRPC: messages in, answers out once their facts are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from coresched.service.batches.facts import BatchFact
from coresched.service.batches.limits import Limits
from coresched.service.batches.log import FactLog, NoLog
from coresched.service.batches.parts import Parts
from coresched.service.batches.read_calls import ReadCalls
from coresched.service.batches.sample_calls import SampleCalls
from coresched.service.batches.session_calls import SessionCalls
from coresched.service.batches.wait_calls import WaitCalls
from coresched.service.clock import ServiceClock
from coresched.service.refusal import RefusedError
from coresched.service.refusals import refusals
from coresched.service.rpc import decoder, unary, undecodable
from coresched.service.table import RoutingTable
from coresched.v1 import batches_pb2 as pb

BATCHES = pb.DESCRIPTOR.services_by_name["Batches"].full_name

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
_Stream = grpc.aio.ServicerContext[pb.WatchProgressRequest, pb.WatchProgressResponse]


class BatchesService:
    """All batches of one server: its gRPC handler, what it does by itself, and its end.

    With facts of an earlier life: `replay` each, in order, then register the workers that are known, then
    `resume`. `run` must be running while calls are served. To be made where an event loop runs.
    """

    def __init__(
        self,
        table: RoutingTable,
        *,
        log: FactLog | None = None,
        clock: ServiceClock | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.parts = Parts(table, log or NoLog(), clock or ServiceClock(), limits or Limits())
        self.sessions = SessionCalls(self.parts)
        self.samples = SampleCalls(self.parts)
        self.reads = ReadCalls(self.parts)
        self.waits = WaitCalls(self.parts)

    def replay(self, fact: BatchFact) -> None:
        """Apply a fact of an earlier life."""
        self.parts.recorder.replay(fact)

    def resume(self) -> None:
        """Go on where the replayed facts end: sessions have a fresh grace period, turns are in flight."""
        self.parts.resume()

    async def run(self) -> None:
        """End by time what ends by time, for ever."""
        await self.parts.expiry.run()

    def stop_waiting(self) -> None:
        """End all calls that wait and all streams with UNAVAILABLE; other calls go on."""
        self.parts.waits.stop()
        self.reads.stop()

    def handler(self) -> grpc.GenericRpcHandler:
        """The service, to be added to a server.

        Between the check of a call and its fact is no await, so that calls never interleave.
        """
        sessions, samples, reads, waits = self.sessions, self.samples, self.reads, self.waits
        durable = self._durable
        return grpc.method_handlers_generic_handler(
            BATCHES,
            {
                "OpenBatch": durable(pb.OpenBatchRequest, sessions.open_batch),
                "Heartbeat": unary(pb.HeartbeatRequest, sessions.heartbeat),
                "SubmitSamples": durable(pb.SubmitSamplesRequest, samples.submit_samples),
                "AwaitAdmission": durable(pb.AwaitAdmissionRequest, waits.await_admission),
                "StartTurn": durable(pb.StartTurnRequest, samples.start_turn),
                "FinishTurn": durable(pb.FinishTurnRequest, samples.finish_turn),
                "AcquireEnvironment": durable(pb.AcquireEnvironmentRequest, waits.acquire_environment),
                "ReleaseEnvironment": durable(pb.ReleaseEnvironmentRequest, samples.release_environment),
                "AcquireResident": durable(pb.AcquireResidentRequest, waits.acquire_resident),
                "ReleaseResident": durable(pb.ReleaseResidentRequest, samples.release_resident),
                "FinishSample": durable(pb.FinishSampleRequest, samples.finish_sample),
                "LeaveBatch": durable(pb.LeaveBatchRequest, sessions.leave_batch),
                "CloseBatch": durable(pb.CloseBatchRequest, sessions.close_batch),
                "ListBatches": unary(pb.ListBatchesRequest, reads.list_batches),
                "GetReport": unary(pb.GetReportRequest, reads.get_report),
                "WatchProgress": grpc.unary_stream_rpc_method_handler(
                    cast(Any, self._watch),  # the types know synchronous servers only
                    request_deserializer=cast(Any, decoder(pb.WatchProgressRequest)),
                    response_serializer=pb.WatchProgressResponse.SerializeToString,
                ),
            },
        )

    def _durable(
        self, kind: type[Q], carry_out: Callable[[Q], A] | Callable[[Q], Awaitable[A]]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        committed = self.parts.recorder.committed

        if asyncio.iscoroutinefunction(carry_out):

            async def answer(request: Q) -> A:
                answered: A = await carry_out(request)
                await committed()
                return answered

        else:

            async def answer(request: Q) -> A:
                answered = cast(A, carry_out(request))
                await committed()
                return answered

        return unary(kind, answer)

    async def _watch(self, request: pb.WatchProgressRequest | None, context: _Stream) -> None:
        # Not a generator: one that is cancelled while its answer is written would be closed some time later.
        try:
            if request is None:
                raise undecodable()
            await self.reads.watch_progress(request, context.write)
        except RefusedError as refused:
            refusals.note("WatchProgress", refused)
            await context.abort(refused.code, refused.message)
