"""A Batches service without state, which answers by a script: what a client does about every answer."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from coresched.v1 import batches_pb2 as pb

_SERVICE = pb.DESCRIPTOR.services_by_name["Batches"]

Outcome = Callable[[Any, grpc.ServicerContext], Any]


def refuse(code: grpc.StatusCode, message: str = "") -> Outcome:
    def outcome(request: Any, context: grpc.ServicerContext) -> Any:
        context.abort(code, message)

    return outcome


UNAVAILABLE = refuse(grpc.StatusCode.UNAVAILABLE, "not now")


class Blocked:
    """An outcome that takes until the client gives up, or `go` is set."""

    def __init__(self, reply: Any) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.go = threading.Event()
        self.reply = reply

    def __call__(self, request: Any, context: grpc.ServicerContext) -> Any:
        context.add_callback(self.go.set)
        self.begun.set()
        self.go.wait(20)
        if not context.is_active():
            self.ended.set()
        return self.reply


class FakeBatches:
    """`script[method]` holds the next outcomes of a method; without any, calls are answered at once."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.script: dict[str, deque[Outcome]] = defaultdict(deque)
        self.always: dict[str, Outcome] = {}
        self.heartbeat_s = 60.0
        self.address = ""

    def of(self, method: str) -> list[Any]:
        return [request for name, request in self.calls if name == method]

    def answer(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        self.calls.append((method, request))
        if self.script[method]:
            return self.script[method].popleft()(request, context)
        if method in self.always:
            return self.always[method](request, context)
        if method == "OpenBatch":
            return pb.OpenBatchResponse(session="s", heartbeat_s=self.heartbeat_s, grace_s=request.grace_s)
        if method == "SubmitSamples":
            return pb.SubmitSamplesResponse(states=[pb.SAMPLE_STATE_OPEN] * len(request.samples))
        if method == "AwaitAdmission":
            return pb.AwaitAdmissionResponse(sample=request.sample, admissions=1)
        if method == "StartTurn":
            return pb.StartTurnResponse(worker="w0")
        return getattr(pb, f"{method}Response")()

    def handler(self) -> grpc.GenericRpcHandler:
        def unary(method: str) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: self.answer(method, request, context),
                request_deserializer=getattr(pb, f"{method}Request").FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )

        methods = [method.name for method in _SERVICE.methods if not method.server_streaming]
        return grpc.method_handlers_generic_handler(
            _SERVICE.full_name, {method: unary(method) for method in methods}
        )


@contextmanager
def fake_batches() -> Iterator[FakeBatches]:
    fake = FakeBatches()
    server = grpc.server(ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers((fake.handler(),))
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield fake
    finally:
        server.stop(0).wait()
