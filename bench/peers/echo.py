"""The bare echo RPC beside the router service: the same transport and options, messages of the same size.

``python -m bench.peers.echo ADDRESS`` listens there as `coresched serve` does, under the router's method
names, so that one client calls either. A message is neither decoded nor remembered, and the answer is always
the same.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc

from coresched.listen import TcpAddress, listen_address
from coresched.service.server import OPTIONS
from coresched.service.servicer import ROUTER
from coresched.v1 import router_pb2 as pb

WORKER = "worker-0"

_ROUTED = pb.RouteResponse(worker=WORKER)
_ROUTE, _RELEASE = _ROUTED.SerializeToString(), pb.ReleaseResponse().SerializeToString()

# By the first byte of a request, the tag of its one field.
_ON_STREAM = {
    asked.SerializeToString()[0]: answer.SerializeToString()
    for asked, answer in (
        (
            pb.RouteStreamRequest(route=pb.RouteRequest()),
            pb.RouteStreamResponse(request_id="0" * 36, route=_ROUTED),
        ),
        (
            pb.RouteStreamRequest(release=pb.ReleaseRequest()),
            pb.RouteStreamResponse(request_id="0" * 36, release=pb.ReleaseResponse()),
        ),
    )
}


async def _route(request: bytes, context: object) -> bytes:
    return _ROUTE


async def _release(request: bytes, context: object) -> bytes:
    return _RELEASE


async def _stream(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
    async for request in requests:
        await context.write(_ON_STREAM[request[0]])


async def serve(address: str) -> None:
    """Echo until the process is ended; a line on stdout says where, once it accepts connections."""
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                ROUTER,
                {
                    "Route": grpc.unary_unary_rpc_method_handler(cast(Any, _route)),
                    "Release": grpc.unary_unary_rpc_method_handler(cast(Any, _release)),
                    "RouteStream": grpc.stream_stream_rpc_method_handler(cast(Any, _stream)),
                },
            ),
        )
    )
    listen = listen_address(address)
    port = server.add_insecure_port(str(listen))
    if isinstance(listen, TcpAddress):
        listen = TcpAddress(listen.host, port)
    await server.start()
    print(f"echo: listening on {listen}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
