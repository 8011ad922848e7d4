"""What the endpoint serves: AIBrix's questions are read and answered, or refused with what is wrong."""

from __future__ import annotations

import logging
from collections import Counter
from hashlib import sha256
from hmac import compare_digest

from aiohttp import hdrs, web
from aiohttp.helpers import parse_mimetype

from coresched.logs import event
from coresched_aibrix.labels import LabelSource, request_label
from coresched_aibrix.picker import NoCountsError, Picker
from coresched_aibrix.protocol import (
    MEDIA_TYPE,
    SelectionRequest,
    no_decision,
    problem,
    selected,
    selection_request,
)

PATH = "/v1alpha1/select"
"""Where the contract has the operation; AIBRIX_EXTERNAL_ROUTER_ENDPOINT ends with it."""

NO_COUNTS = "NoRunningRequests"
"""The reason of a decision that is left to AIBrix."""

_logger = logging.getLogger(__name__)


class _RefusedError(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Endpoint:
    """The HTTP handler, and counts of its answers since the start. For one event loop."""

    def __init__(self, picker: Picker, *, label_attribute: str, token: str | None = None) -> None:
        """`label_attribute` names the policy attribute that holds the label. With a `token`, requests must
        have it as their bearer token."""
        self.picker = picker
        self._label_attribute = label_attribute
        self._token = None if token is None else _digest(f"Bearer {token}")
        self.selected: Counter[LabelSource] = Counter({"attribute": 0, "trace": 0, "request": 0})
        """Decisions that named a pod, by where the label was found."""
        self.undecided = 0
        """Decisions left to AIBrix's fallback, for want of counts."""
        self.refused: Counter[int] = Counter()
        """Requests answered with an error, by its status."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        try:
            if request.path == PATH and request.method == hdrs.METH_POST:
                return web.Response(
                    body=await self._decision(request), headers={hdrs.CONTENT_TYPE: MEDIA_TYPE}
                )
            if request.path == "/health" and request.method == hdrs.METH_GET:
                return web.json_response({"pods": self.picker.pods})
            raise _RefusedError(
                404, f"{request.method} {request.path!a} is not served; POST to {PATH}, or GET /health"
            )
        except _RefusedError as refused:
            return self.refuse(refused.status, refused.detail)

    def refuse(self, status: int, detail: str) -> web.Response:
        """An answer that is no decision. AIBrix takes it for a failure, of which several open its circuit.

        The first of each status is logged, as the clients of AIBrix are not told why.
        """
        if not self.refused[status]:
            event(
                _logger,
                logging.WARNING,
                "refused",
                f"a request was refused, as others may be, which are counted only: {status}: {detail}",
                status=status,
            )
        self.refused[status] += 1
        return web.Response(
            status=status, body=problem(status, detail), content_type="application/problem+json"
        )

    async def _decision(self, request: web.BaseRequest) -> bytes:
        headers = request.headers
        if self._token is not None and not compare_digest(
            _digest(headers.get(hdrs.AUTHORIZATION, "")), self._token
        ):
            raise _RefusedError(
                401,
                "header Authorization must have the bearer token of --token-file; start AIBrix with the same "
                "file as AIBRIX_EXTERNAL_ROUTER_AUTH_TOKEN_FILE",
            )
        given = headers.get(hdrs.CONTENT_TYPE, "")
        if given != MEDIA_TYPE and not _is_protocol(given):
            raise _RefusedError(415, f"header Content-Type must be {MEDIA_TYPE}, got {given!a}")
        try:
            asked = selection_request(await request.read())
        except web.HTTPRequestEntityTooLarge as error:
            raise _RefusedError(413, f"the body must be smaller: {error.text}") from None
        except web.RequestPayloadError as error:
            raise _RefusedError(400, f"the body is malformed: {error}") from None
        except ValueError as error:
            raise _RefusedError(400, str(error)) from None
        request_id = asked.metadata.request_id
        if headers.get("X-Request-Id", request_id) != request_id:
            raise _RefusedError(400, "header X-Request-Id must be metadata.requestId, got another")
        try:
            return self._pick(asked, headers.get("traceparent"))
        except ValueError as error:
            raise _RefusedError(400, str(error)) from None

    def _pick(self, asked: SelectionRequest, traceparent: str | None) -> bytes:
        spec = asked.spec
        label, source = request_label(
            spec.policy_context.attributes, self._label_attribute, traceparent, asked.metadata.request_id
        )
        try:
            picked = self.picker.pick(label, spec.candidates)
        except NoCountsError as error:
            if spec.policy_mode == "Authoritative":
                raise _RefusedError(503, str(error)) from None
            if self.undecided == 0:
                event(_logger, logging.WARNING, "no_counts", f"left to AIBrix's fallback: {error}")
            self.undecided += 1
            return no_decision(asked, NO_COUNTS)
        self.selected[source] += 1
        return selected(asked, picked.pod, picked.port)


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()


def _is_protocol(content_type: str) -> bool:
    """Whether it is the media type, spaced or quoted in another way."""
    mine, theirs = parse_mimetype(MEDIA_TYPE), parse_mimetype(content_type)
    return (theirs.type, theirs.subtype, theirs.suffix, theirs.parameters.get("version")) == (
        mine.type,
        mine.subtype,
        mine.suffix,
        mine.parameters.get("version"),
    )
