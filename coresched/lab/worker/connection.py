"""A client's connection: what is no HTTP is answered in OpenAI's form too, without a traceback."""

from __future__ import annotations

import logging

from aiohttp import web

from coresched.lab.worker.refusal import error_body
from coresched.lab.worker.replying import json_response

_logger = logging.getLogger(__name__)


class Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0 or isinstance(exc, ConnectionError):
            raise ConnectionResetError("the answer had begun, or the client is gone")
        if status < 500:
            said = (message or "the request is malformed").partition("\n")[0].rstrip(": ")
        else:
            _logger.error("a request failed", exc_info=exc)
            said = "the worker failed; its log says why"
        response = json_response(error_body(status, said), status)
        response.force_close()
        return response
