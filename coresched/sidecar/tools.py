"""The tools' side: each call is matched to the trajectory that asked for it and runs in its slot."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil

from aiohttp import web

from coresched.gateway import headers
from coresched.gateway.headers import WORKER_HEADER
from coresched.gateway.labels import header_label
from coresched.gateway.refusal import RefusedError
from coresched.logs import event
from coresched.sidecar.messages import ToolCall, is_other_method, requested_call
from coresched.sidecar.pending import Match
from coresched.sidecar.terms import MAY_BE_MADE_AGAIN, QueueDeadlineError
from coresched.sidecar.trajectories import Trajectories
from coresched.sidecar.trajectory import Trajectory
from coresched.sidecar.upstream import Answer, Request, Upstream, passed_on

_LONGEST_SHOWN = 100

_logger = logging.getLogger(__name__)


class ToolSide:
    """Handlers of all paths but those under /v1/ and /coresched/; for one event loop."""

    def __init__(self, trajectories: Trajectories, tools: Upstream, *, retry_after_s: float) -> None:
        self._trajectories = trajectories
        self._tools = tools
        self._retry_after_s = max(1, ceil(retry_after_s))

    async def call(self, request: web.Request) -> web.StreamResponse:
        """POST to the path of tool calls."""
        label = header_label(request.headers)
        body = await request.read()
        made = requested_call(body)
        if made is None and is_other_method(body):
            return await self.other(request)
        async with (
            self._place(made, label) as (owner, outcome),
            self._tools.asked(_sent_on(request, body, owner)) as answer,
        ):
            response = await self._answered(request, answer)
            refused = answer.status >= 500 or answer.status in MAY_BE_MADE_AGAIN
            outcome.append(not (refused or answer.broken))
            return response

    async def other(self, request: web.Request) -> web.StreamResponse:
        """What is no tool call: passed on as it is."""
        body = await request.read()
        async with self._tools.asked(_sent_on(request, body, None)) as answer:
            return await self._answered(request, answer)

    @asynccontextmanager
    async def _place(
        self, made: ToolCall | None, label: str | None
    ) -> AsyncIterator[tuple[str | None, list[bool]]]:
        """Whose call it is, and the slot to run it in. Raises RefusedError (503) at the queue deadline."""
        match = self._trajectories.pending.match(made, label) if made is not None else None
        owner = match.call.owner if match is not None else label
        trajectory = self._trajectories.present(owner) if owner is not None else None
        try:
            if trajectory is None:
                self._note_unmatched(made)
                async with self._trajectories.unmatched():
                    yield None, []
                return
            self._count(match, trajectory, made)
            async with trajectory.executing(match.call if match is not None else None) as outcome:
                yield trajectory.label, outcome
        except QueueDeadlineError:
            raise RefusedError(
                503,
                "queue_deadline",
                "the tool call waited for a slot until --queue-deadline-s, and was not executed; "
                f"try again in {self._retry_after_s} s",
                retry_after_s=self._retry_after_s,
            ) from None

    async def _answered(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        answer.headers.popall(WORKER_HEADER, None)
        return await passed_on(request, answer)

    def _count(self, match: Match | None, trajectory: Trajectory, made: ToolCall | None) -> None:
        counts = self._trajectories.counts
        counts.matched += 1
        if match is None:
            return
        counts.ambiguous += match.ambiguous
        counts.again += match.again
        counts.near += match.near
        event(
            _logger,
            logging.DEBUG,
            "call_matched",
            f"{_shown(made)} is of trajectory {trajectory.label!r}"
            f"{', or of another with the same call' if match.ambiguous else ''}",
            label=trajectory.label,
        )

    def _note_unmatched(self, made: ToolCall | None) -> None:
        self._trajectories.counts.unmatched += 1
        event(
            _logger,
            logging.WARNING,
            "call_unmatched",
            f"no assistant message asked for {_shown(made)}; it runs beside the batch's slots",
        )


def _sent_on(request: web.Request, body: bytes, owner: str | None) -> Request:
    try:
        kept = headers.to_worker(request.headers, owner)
    except headers.HeaderTextError as error:
        raise RefusedError(400, "invalid_request", str(error)) from None
    return Request(request.method, request.raw_path, kept, body if request.body_exists else None)


def _shown(made: ToolCall | None) -> str:
    if made is None:
        return "a call that cannot be read"
    text = f"{made.name}({made.arguments})"
    return ascii(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "...")
