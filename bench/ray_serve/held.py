"""A deployment whose requests stay in flight until they are let go. Runs in Ray's environment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from bench.ray_serve.cluster import router_of

LOAD_BOUNDED = "coresched_ray.request_router:LoadBoundedRequestRouter"

CONSISTENT_HASHING = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"

REPLICAS = 3


@ray.remote(num_cpus=0, max_concurrency=2000)
class Gate:
    """Where requests are held."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._held = 0

    async def wait(self) -> None:
        self._held += 1
        try:
            await self._opened.wait()
        finally:
            self._held -= 1

    async def held(self) -> int:
        return self._held

    async def open(self) -> None:
        self._opened.set()

    async def shut(self) -> None:
        self._opened.clear()


def await_replicas(handle: Any) -> None:
    """Returns once this process's router has all replicas, where it is ours on their slots.

    They come to a router one after another, and what it chooses before the last is among fewer.
    """
    handle.sleep.remote(0).result()
    router = router_of(handle)
    wait_until(lambda: len(router._replicas) == REPLICAS)
    if hasattr(router, "_ring"):
        wait_until(lambda: len(router._ring.slots) == REPLICAS and not router._ring.in_flight())


def new_gate() -> Any:
    """A handle of a gate, which is shut."""
    make: Any = Gate
    return make.remote()


class Held:
    """Answers with the rank of the replica that served."""

    def __init__(self, gate: Any) -> None:
        self._gate = gate

    async def __call__(self, request: Any) -> Any:
        """Of an HTTP request: at once, held, or as a stream that begins at once and is held."""
        path = request.url.path.rsplit("/", 1)[-1]
        if path == "stream":
            from starlette.responses import StreamingResponse

            return StreamingResponse(self._lines())
        return str(await (self.hold() if path == "hold" else self.now()))

    async def _lines(self) -> AsyncIterator[str]:
        async for rank in self.stream():
            yield f"{rank}\n"

    async def stream(self) -> AsyncIterator[int]:
        yield _rank()
        await self._gate.wait.remote()
        yield _rank()

    async def hold(self, **_: Any) -> int:
        await self._gate.wait.remote()
        return _rank()

    async def now(self, **_: Any) -> int:
        return _rank()

    async def sleep(self, seconds: float) -> int:
        await asyncio.sleep(seconds)
        return _rank()


class FanOut:
    """An ingress that calls several replicas within one request, and answers with their ranks."""

    def __init__(self, application: str) -> None:
        self._held = serve.get_app_handle(application)

    async def __call__(self, request: Any) -> list[int]:
        calls = [self._held.now.options(session_id=f"s{i}").remote() for i in range(12)]
        return list(await asyncio.gather(*calls))


def _rank() -> int:
    context = serve.get_replica_context()
    rank: int = context.rank.rank
    return rank


def held_deployment(router: str | None, /, *, most_ongoing: int = 200, **options: Any) -> Any:
    """The deployment behind this router with these keyword arguments; None: behind Serve's own."""
    config = {} if router is None else {"request_router_class": router, "request_router_kwargs": options}
    return serve.deployment(
        num_replicas=REPLICAS,
        max_ongoing_requests=most_ongoing,
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=1,
        graceful_shutdown_timeout_s=1,
        request_router_config=RequestRouterConfig(**config),
    )(Held)


def wait_until(condition: Any, seconds: float = 30) -> None:
    """Raises TimeoutError if it does not come true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{condition} did not come true within {seconds} s")
        time.sleep(0.05)
