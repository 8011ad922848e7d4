"""Requests before the clock starts, for what an engine does only with its first ones."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import aiohttp

from coresched.lab.replay.endpoint import Endpoint, generate
from coresched.lab.replay.failure import EndpointError, ReplayError
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.protocol import Protocol, check_counts

PROMPT_TOKENS: Final = 64
OUTPUT_TOKENS: Final = 8
PAUSE_S: Final = 0.5
"""Before a request that failed is sent again, in seconds of the wall clock."""


async def warm_up(
    session: aiohttp.ClientSession,
    endpoints: Sequence[Endpoint],
    protocol: Protocol,
    tokens: TokenSource,
    *,
    requests: int,
    patience_s: float,
) -> None:
    """Send ``requests`` to each endpoint, one after another, with prompts that no trajectory begins with.

    They carry no label, for a worker with routing-prefix would remember it. Raises ReplayError for an
    endpoint that does not answer for ``patience_s``, or answers as none of a replay may.
    """
    work = [_warm_up(session, one, protocol, tokens, requests, patience_s) for one in endpoints]
    await asyncio.gather(*work)


async def _warm_up(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    protocol: Protocol,
    tokens: TokenSource,
    requests: int,
    patience_s: float,
) -> None:
    for number in range(requests):
        where = f"warm-up request {number + 1} of {requests}: endpoint {endpoint}"
        ids = tokens.ids(f"warm-up {number}\0{endpoint.name}", PROMPT_TOKENS)
        body = protocol.body(",".join(map(str, ids)).encode(), None, OUTPUT_TOKENS)
        failed_at = None
        while True:
            try:
                reply = await generate(session, endpoint, protocol, body, {})
            except EndpointError as error:
                failed_at = failed_at or time.monotonic()
                if not error.may_retry or time.monotonic() + PAUSE_S > failed_at + patience_s:
                    raise ReplayError(f"{where} {error}") from None
                await asyncio.sleep(PAUSE_S)
                continue
            check_counts(reply.answer, PROMPT_TOKENS, OUTPUT_TOKENS, where)
            break
