"""httpx transports that send each model call straight to the worker of its trajectory label.

    workers = ["http://10.0.0.1:30000", "http://10.0.0.2:30000"]
    client = openai.AsyncOpenAI(
        http_client=httpx.AsyncClient(transport=coresched.httpx.Transport(workers)),
        base_url="http://workers/v1",
    )

The host of `base_url` stands for all workers: scheme, host and port of a request become those of the worker
that LBCH chooses for the label in scope, which `coresched.label` or an open turn of a Batch puts there.
"""

try:
    import httpx as _httpx  # noqa: F401
except ImportError as missing:
    raise ImportError(
        "coresched.httpx needs httpx; install it with: pip install 'coresched[httpx]'"
    ) from missing

from coresched.client.shared import AsyncRouter, Flight, Router, SharedRouter
from coresched.httpx.asynchronous import Transport
from coresched.httpx.blocking import SyncTransport

__all__ = ["AsyncRouter", "Flight", "Router", "SharedRouter", "SyncTransport", "Transport"]
