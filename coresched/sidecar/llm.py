"""The LLM's side: every chat completion is a turn of its trajectory, and its reply opens a stage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

from aiohttp import hdrs, web

from coresched.gateway import headers
from coresched.gateway.refusal import RefusedError
from coresched.logs import event
from coresched.sidecar.labels import Identity, LabelFrom, request_label
from coresched.sidecar.messages import StreamedReply, ToolCall, reply_calls
from coresched.sidecar.terms import MAY_BE_MADE_AGAIN
from coresched.sidecar.trajectories import Trajectories
from coresched.sidecar.trajectory import Trajectory
from coresched.sidecar.upstream import Answer, BrokenOffError, Request, Upstream, cut_off, passed_on

Hold = Literal["reply", "call"]
"""What waits for the environment slot: the reply that asks for tool calls, or the calls."""

CHAT_PATH = "/v1/chat/completions"
KEEP_ALIVE_S = 15.0
"""A held stream says so often that it is held, in a comment, which clients skip."""

_logger = logging.getLogger(__name__)


class LlmSide:
    """Handlers of all paths under /v1/; for one event loop."""

    def __init__(
        self,
        trajectories: Trajectories,
        llm: Upstream,
        *,
        label_from: LabelFrom,
        api_key: str | None,
        hold: Hold,
    ) -> None:
        self._trajectories = trajectories
        self._llm = llm
        self._api_key = api_key
        self._label_from = label_from
        self._hold = hold

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """A turn: POST /v1/chat/completions."""
        sent_on, who = await self._request(request)
        async with self._trajectories.request(who.label) as trajectory, trajectory.turn() as over:
            asked = self._llm.asked(sent_on._replace(sample=trajectory.sample.id))
            async with asked as answer:  # and not longer: a held reply is no load of the LLM
                if answer.status == 200 and answer.is_stream:
                    response, reply = await self._begun(request, answer)
                else:
                    body, reply = await answer.whole(), None
            if reply is not None:
                if answer.broken:
                    cut_off(request)
                    return response
                return await self._ended(response, reply, trajectory, over)
            calls = reply_calls(body) if answer.status == 200 else None
            if calls is not None:
                await self._held(trajectory, over, calls)
            elif answer.status == 200:
                event(
                    _logger,
                    logging.WARNING,
                    "reply_unread",
                    f"a reply to trajectory {who.label!r} is no chat completion; its tool calls are unknown",
                    label=who.label,
                )
            elif 400 <= answer.status < 500 and answer.status not in MAY_BE_MADE_AGAIN:
                trajectory.refused()
            return web.Response(status=answer.status, reason=answer.reason, headers=answer.headers, body=body)

    async def other(self, request: web.Request) -> web.StreamResponse:
        """Anything else of the LLM: passed on with the label, and no turn."""
        sent_on, _ = await self._request(request)
        async with self._llm.asked(sent_on) as answer:
            return await passed_on(request, answer)

    async def _request(self, request: web.Request) -> tuple[Request, Identity]:
        body = await request.read()
        who = request_label(request.headers, CHAT_PATH, body, self._label_from)
        try:
            kept = headers.to_worker(request.headers, who.label)
        except headers.HeaderTextError as error:
            raise RefusedError(400, "invalid_request", str(error)) from None
        # What was compressed could not be read here.
        kept[hdrs.ACCEPT_ENCODING.lower()] = "identity"
        if self._api_key is not None:
            kept["authorization"] = f"Bearer {self._api_key}"
        elif who.from_key:
            del kept["authorization"]
        content = body if request.body_exists else None
        return Request(request.method, request.raw_path, kept, content, who.label), who

    async def _begun(self, request: web.Request, answer: Answer) -> tuple[web.StreamResponse, StreamedReply]:
        """Pass a stream on as it comes, up to its tool calls; read it to its end."""
        answer.headers.popall("content-length", None)  # comments may be added
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=answer.headers)
        await response.prepare(request)
        reply = StreamedReply()
        with suppress(BrokenOffError):  # the answer knows
            while piece := await answer.piece():
                if ready := reply.feed(piece):
                    await response.write(ready)
        return response, reply

    async def _ended(
        self,
        response: web.StreamResponse,
        reply: StreamedReply,
        trajectory: Trajectory,
        over: asyncio.Future[bool],
    ) -> web.StreamResponse:
        """The rest of a stream, when its calls may be made."""
        if reply.ended:  # else it is no reply, such as an error
            say = b": waiting for an environment slot\n\n"
            await self._held(trajectory, over, reply.calls(), lambda: response.write(say))
        if kept := reply.kept():
            await response.write(kept)
        await response.write_eof()
        return response

    async def _held(
        self,
        trajectory: Trajectory,
        over: asyncio.Future[bool],
        calls: list[ToolCall],
        say: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """The turn is over; returns when the reply may be handed out."""
        if not over.done():
            over.set_result(True)
        stage = trajectory.replied(calls)
        if not stage or self._hold == "call":
            return
        holding = asyncio.ensure_future(trajectory.hold(stage))
        try:
            while not (await asyncio.wait((holding,), timeout=KEEP_ALIVE_S))[0]:
                if say is not None:
                    await say()
            holding.result()
        finally:
            if not holding.done():
                holding.cancel()
                await asyncio.wait((holding,))
