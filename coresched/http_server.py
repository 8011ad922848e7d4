"""What the HTTP servers of this package share: where they listen, and what they say to no request."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress

from aiohttp import web

from coresched.errors import InputError
from coresched.listen import TcpAddress, UnixAddress

_logger = logging.getLogger(__name__)

_BACKLOG = 1024


class Connection(web.RequestHandler):
    """A client's connection, on which what is no HTTP and what fails is answered in the server's own form.

    ``refuse(status, message)`` makes that answer. ``server`` is what it calls itself. Bodies stay as they
    were sent. To be made on the event loop.
    """

    __slots__ = ("_refuse", "_server_name")

    def __init__(
        self, connections: web.Server, server: str, refuse: Callable[[int, str], web.Response]
    ) -> None:
        super().__init__(connections, loop=asyncio.get_running_loop(), auto_decompress=False)
        self._server_name = server
        self._refuse = refuse

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
            said = f"the {self._server_name} failed; its log says why"
        response = self._refuse(status, said)
        response.force_close()
        return response


async def listen(
    connection: Callable[[], asyncio.Protocol], address: TcpAddress | UnixAddress
) -> tuple[asyncio.AbstractServer, str]:
    """A server that accepts connections, and where. Raises InputError if the address cannot be used."""
    loop = asyncio.get_running_loop()
    try:
        if isinstance(address, UnixAddress):
            return await loop.create_unix_server(connection, address.path, backlog=_BACKLOG), str(address)
        server = await loop.create_server(connection, address.host, address.port, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"--listen {address} cannot be used: {error.strerror}") from None
    return server, str(TcpAddress(address.host, server.sockets[0].getsockname()[1]))


def remove_socket(address: str) -> None:
    """Take away the file of a unix socket, in the end; of another address nothing."""
    if address.startswith("unix:"):
        with suppress(FileNotFoundError):  # Python 3.13 has removed it already
            os.unlink(address.removeprefix("unix:"))
