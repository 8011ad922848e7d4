"""Servers of the tiny model for tests, and what they say of themselves."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

MODEL = "tiny"
MOST_RUNNING = 6
LABEL_CAPACITY = 8
FLAGS = (
    *("--served-model-name", MODEL, "--dtype", "float32", "--max-model-len", "2048", "--enforce-eager"),
    *(
        "--max-num-seqs",
        str(MOST_RUNNING),
        "--max-num-batched-tokens",
        "512",
        "--kv-cache-memory-bytes",
        "67108864",
    ),
    *("--num-gpu-blocks-override", "40", "--enable-prefix-caching", "--enable-prompt-tokens-details"),
    *("--scheduler-cls", "coresched_vllm.RoutingPrefix", "--disable-uvicorn-access-log"),
    *("--additional-config", json.dumps({"coresched": {"label_capacity": LABEL_CAPACITY}})),
)
"""A block is 128 tokens of the attention layer or the state of a convolution, of which there are three."""

_OURS = "coresched_prefix_"
_METRICS = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:prompt_tokens_total": "prompt tokens",
    "vllm:generation_tokens_total": "output tokens",
    "vllm:prefix_cache_queries_total": "asked tokens",
    "vllm:prefix_cache_hits_total": "cached tokens",
    f"{_OURS}refused_labels_total": "refused",
    f"{_OURS}resumed_total": "resumed",
}


def counts(url: str) -> dict[str, float]:
    """What a server counts: of vLLM's metrics some, and of ours "hit", "miss", "none" and "refused"."""
    found = {}
    for line in httpx.get(f"{url}/metrics", timeout=60).text.splitlines():
        name, _, rest = line.partition("{")
        if name in _METRICS:
            found[_METRICS[name]] = float(rest.rsplit(" ", 1)[1])
        elif name == f"{_OURS}admitted_total":
            found[rest.split('label="')[1].split('"')[0]] = float(rest.rsplit(" ", 1)[1])
    return found


def grown(url: str, before: dict[str, float]) -> dict[str, int]:
    """What is counted since, without what is as it was."""
    after = counts(url)
    return {name: int(after[name] - before[name]) for name in after if after[name] != before[name]}


def prompt(number: int, tokens: int) -> list[int]:
    return [3 + (number * 7_919 + place * 31) % 247 for place in range(tokens)]


def asked(ids: Sequence[int], output_tokens: int, **more: Any) -> dict[str, Any]:
    """The body of a completion of exactly that many tokens."""
    exact = {"max_tokens": output_tokens, "min_tokens": output_tokens, "ignore_eos": True, "temperature": 0}
    return {"model": MODEL, "prompt": list(ids), "return_token_ids": True, **exact, **more}


def status_of(url: str, body: dict[str, Any], header: bytes = b"") -> int:
    """The answer's status to a completion with a header line that no client would send."""
    data = json.dumps(body).encode()
    at = urlsplit(url)
    lines = [
        b"POST /v1/completions HTTP/1.1",
        *(b"Host: test", b"Connection: close", b"Content-Type: application/json"),
        b"Content-Length: %d" % len(data),
        *([header] if header else []),
    ]
    with socket.create_connection((at.hostname, at.port or 80), timeout=120) as connection:
        connection.sendall(b"\r\n".join([*lines, b"", data]))
        first = connection.makefile("rb").readline()
    return int(first.split()[1])
