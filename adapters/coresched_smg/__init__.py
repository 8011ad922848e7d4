"""LBCH through an unchanged smg, by minted routing keys.

    with coresched_smg.SmgRouter("http://127.0.0.1:30000") as smg:
        client = openai.AsyncOpenAI(
            http_client=httpx.AsyncClient(transport=coresched_smg.Transport(smg)),
            base_url="http://smg/v1",
        )
        batch = coresched.Batch(sample_concurrency=50, environment_concurrency=3, workers=smg.workers())

Each call goes to smg with a routing key whose home on smg's ring is the worker that LBCH chose; smg itself
stays as it is.
"""

try:
    import httpx as _httpx  # noqa: F401
except ImportError as missing:
    raise ImportError("coresched_smg needs httpx; install it with: pip install 'coresched[smg]'") from missing

from coresched_smg.keys import MintedKeys
from coresched_smg.router import SmgRouter
from coresched_smg.transports import SyncTransport, Transport

__all__ = ["MintedKeys", "SmgRouter", "SyncTransport", "Transport"]
