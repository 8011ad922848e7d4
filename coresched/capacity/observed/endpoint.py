"""A running engine's report over HTTP, with nothing but the standard library."""

import http.client
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

from coresched.capacity.fields import one_line, shown
from coresched.capacity.observed.pools import ObservedPools
from coresched.capacity.observed.sglang_report import read_server_info
from coresched.capacity.observed.vllm_report import INFO, read_metrics
from coresched.errors import InputError

LARGEST_ANSWER = 64 << 20
FIX = "check the address and that the engine is up, or pass its boot log with --log"

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Engines are not behind forward proxies, and a proxy set for the internet would answer for localhost."""


class _Absent(Exception):
    """The server answered, with another status than 200."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def observe_engine(url: str, timeout_s: float = 5.0) -> ObservedPools:
    """The pools of the SGLang or vLLM server at ``url``, within ``timeout_s`` seconds for all of it.

    SGLang answers GET /server_info; vLLM GET /metrics, /version and /v1/models. A path such as /v1 at the end
    of the address is left out, and proxies of the environment are not used.
    Raises InputError naming the address: it cannot be reached, is no such engine, or leaves a number out.
    """
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= 86_400:
        raise InputError(f"timeout_s is {shown(timeout_s)}; it must be above 0 and at most 86,400 seconds")
    root = _root(url)
    deadline = time.monotonic() + timeout_s

    def get(path: str) -> str:
        return _get(root, path, deadline, timeout_s)

    try:
        info = _json(get("/server_info"))
    except _Absent as absent:
        if absent.status in (401, 403):
            raise InputError(
                f"{root}: /server_info wants an API key (HTTP {absent.status}), which is not sent; pass the "
                "engine's boot log with --log"
            ) from None
        info = None
    # vLLM has a /server_info of its own in development mode.
    if isinstance(info, dict) and "vllm_config" not in info:
        return read_server_info(info, root)
    try:
        metrics = get("/metrics")
    except _Absent as absent:
        raise InputError(
            f"{root}: neither /server_info nor /metrics is there (HTTP {absent.status}), so it is no SGLang "
            f"or vLLM server; {FIX}"
        ) from None
    if "\n" + INFO not in "\n" + metrics:
        if "sglang:" in metrics:
            raise InputError(
                f"{root}: this SGLang has no /server_info; it must be of about 0.5.23, or pass its boot log "
                "with --log"
            )
        raise InputError(
            f"{root}: answers neither /server_info as SGLang does nor vllm:cache_config_info in /metrics as "
            f"vLLM does; {FIX}"
        )
    version = _optional(get, "/version")
    number = version.get("version") if isinstance(version, dict) else None
    return read_metrics(
        metrics,
        root,
        version=number if isinstance(number, str) else None,
        models=_optional(get, "/v1/models"),
    )


def _root(url: str) -> str:
    if not isinstance(url, str) or not url.isprintable() or " " in url or not url:
        raise InputError(f"engine address {shown(url)} is no URL; give one like http://127.0.0.1:30000")
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a broken IPv6 address
        usable = False
    if not usable:
        raise InputError(f"engine address {shown(url)} is no http URL; give one like http://127.0.0.1:30000")
    if "@" in parts.netloc:
        raise InputError("the engine address has a user or password in it, which is not sent; leave it out")
    path = re.sub(r"/(v1|server_info|metrics)?/?$", "", parts.path)
    return f"{parts.scheme}://{parts.netloc}{path}"


def _get(root: str, path: str, deadline: float, timeout_s: float) -> str:
    """The body of an answer of status 200. Raises _Absent for another one, InputError for none in time.

    In a thread of its own: a server that sends a byte now and then holds a socket's timeout off forever.
    """
    answer: list[bytes | Exception] = []
    left = deadline - time.monotonic()

    def fetch() -> None:
        try:
            with _OPENER.open(f"{root}{path}", timeout=max(left, 0.001)) as response:
                answer.append(response.read(LARGEST_ANSWER + 1))
        except Exception as problem:
            answer.append(problem)

    thread = threading.Thread(target=fetch, daemon=True, name="coresched-observe")
    if left > 0:
        thread.start()
        thread.join(left)
    got = answer[0] if answer else TimeoutError()
    if isinstance(got, bytes):
        if len(got) > LARGEST_ANSWER:
            raise InputError(
                f"{root}: {path} is larger than {LARGEST_ANSWER >> 20} MiB, so it is no engine; {FIX}"
            )
        return got.decode("utf-8", "replace")
    if isinstance(got, urllib.error.HTTPError):
        got.close()
        if 300 <= got.code < 400:
            raise InputError(f"{root}: {path} redirects without end; {FIX}")
        raise _Absent(got.code)
    reason = got.reason if isinstance(got, urllib.error.URLError) else got
    if isinstance(reason, TimeoutError):
        raise InputError(f"{root}: {path} did not answer within {timeout_s:g} s; raise --timeout-s, or {FIX}")
    if isinstance(reason, (OSError, http.client.HTTPException, ValueError)):
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise InputError(f"{root}: cannot be reached ({one_line(text.strip())[:200]}); {FIX}")
    raise got


def _json(text: str) -> object:
    """The decoded JSON, None where it is none, and in place of NaN and infinities."""
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def _optional(get: Callable[[str], str], path: str) -> object:
    """What a path answers in JSON, None where the server does not have it."""
    try:
        return _json(get(path))
    except _Absent:
        return None
