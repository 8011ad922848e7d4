"""What the gateway serves: each request is read, labelled and handed on, or refused; and how it drains."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from aiohttp import hdrs, web

from coresched.gateway.forward import Call, Forwarder
from coresched.gateway.labels import body_label, header_label
from coresched.gateway.refusal import RefusedError, answer, shown

INFERENCE_PATHS = frozenset(("/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate"))


class Gateway:
    """The HTTP handler, for one event loop."""

    def __init__(self, forwarder: Forwarder, *, label_fields: Sequence[str], max_body_bytes: int) -> None:
        self._forwarder = forwarder
        self._label_fields = tuple(label_fields)
        self._max_body_bytes = max_body_bytes
        self._busy: set[web.RequestHandler] = set()
        self._draining = False
        self._idle = asyncio.Event()

    def drain(self) -> frozenset[web.RequestHandler]:
        """From now on each connection closes after its answer. The connections with a request under way."""
        self._draining = True
        if not self._busy:
            self._idle.set()
        return frozenset(self._busy)

    async def idle(self) -> None:
        """Returns once no request is under way, after `drain`."""
        await self._idle.wait()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, by a worker or with an error in OpenAI's form."""
        connection = request.protocol
        self._busy.add(connection)
        try:
            return self._last_of_a_drain(await self._served(request))
        except RefusedError as refused:
            self._forwarder.traffic.refuse(refused)
            return self._last_of_a_drain(answer(refused))
        finally:
            self._busy.discard(connection)
            if self._draining and not self._busy:
                self._idle.set()

    async def _served(self, request: web.BaseRequest) -> web.StreamResponse:
        arrived = self._forwarder.traffic.clock()
        target = request.raw_path
        path, mark, query = target.partition("?")
        if request.method == "POST" and path in INFERENCE_PATHS:
            label = header_label(request.headers)
            body = await self._body(request)
            if label is None:
                label = body_label(path, body, self._label_fields)
        elif request.method == "GET" and path == "/v1/models":
            label, body = None, b""
        elif request.method == "GET" and path == "/health":
            return self._health()
        else:
            self._refuse_target(request.method, target)
        if not target.isascii():
            raise RefusedError(400, "invalid_request", f"the query must be ASCII, got {shown(query)}")
        call = Call(path, query if mark else None, label, body, arrived)
        return await self._forwarder.forward(request, call, last=lambda: self._draining)

    def _refuse_target(self, method: str, target: str) -> NoReturn:
        if not target.startswith("/"):
            raise RefusedError(
                400,
                "invalid_request",
                f"the request target must be a path, got {shown(target)}; this is no forward proxy",
            )
        raise RefusedError(
            404,
            "not_found",
            f"{shown(method)} {shown(target)} is not served; POST to one of "
            f"{', '.join(sorted(INFERENCE_PATHS))}, or GET /v1/models or /health",
        )

    def _health(self) -> web.Response:
        fleet = self._forwarder.fleet
        if fleet.healthy() == 0:
            self._forwarder.refuse_without_worker()
        text = f'{{"healthy_workers": {fleet.healthy()}, "workers": {len(fleet.workers)}}}'
        return web.Response(text=text, content_type="application/json")

    async def _body(self, request: web.BaseRequest) -> bytes:
        """The whole body as it came. Raises RefusedError (413, 400)."""
        length = request.content_length
        if length is not None and length > self._max_body_bytes:
            self._refuse_size()
        if hdrs.EXPECT in request.headers:
            await self._say_go_on(request)
        content = request.content
        try:
            if length is not None and content.is_eof():
                return content.read_nowait()
            pieces = []
            size = 0
            while piece := await content.readany():
                size += len(piece)
                if size > self._max_body_bytes:
                    self._refuse_size()
                pieces.append(piece)
        except web.RequestPayloadError as error:
            raise RefusedError(400, "invalid_request", f"the body is malformed: {error}") from None
        return b"".join(pieces)

    async def _say_go_on(self, request: web.BaseRequest) -> None:
        if request.headers[hdrs.EXPECT].lower() != "100-continue":
            raise RefusedError(417, "invalid_request", "header Expect must be 100-continue", param="Expect")
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer has not begun

    def _refuse_size(self) -> NoReturn:
        limit = self._max_body_bytes / (1 << 20)
        raise RefusedError(
            413,
            "body_too_large",
            f"the body must have at most {limit:g} MiB; send less, or start with a larger --max-body-mib",
        )

    def _last_of_a_drain(self, response: web.StreamResponse) -> web.StreamResponse:
        if self._draining and not response.prepared:
            response.force_close()
        return response
