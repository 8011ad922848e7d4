"""The HTTP server of the sidecar, from its batch to the graceful stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from coresched.batch.records import TransitionError
from coresched.client.errors import BatchClosedError, ServiceError
from coresched.gateway.fleet import Fleet
from coresched.gateway.health import HealthChecks
from coresched.gateway.refusal import RefusedError, answer, shown
from coresched.gateway.workers import Worker
from coresched.http_server import Connection, listen, remove_socket
from coresched.listen import TcpAddress, UnixAddress
from coresched.recording.requests import RequestRecord
from coresched.sidecar.batch import BatchOptions, make_batch
from coresched.sidecar.labels import LabelFrom
from coresched.sidecar.llm import CHAT_PATH, Hold, LlmSide
from coresched.sidecar.status import SidecarCollector, status
from coresched.sidecar.terms import CallGivenUpError, Terms, TrajectoryEndedError
from coresched.sidecar.tools import ToolSide
from coresched.sidecar.trajectories import Trajectories
from coresched.sidecar.upstream import RETRY_AFTER_S, OneServer, Upstream, upstream_session
from coresched.stopping import stop_signals

HEALTH_INTERVAL_S = 5.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the sidecar stands between, and how. `llm` is one server, or the workers to route among."""

    llm: Worker | Fleet
    tools: Worker
    batch: BatchOptions
    tool_path: str = "/call-tool"
    hold: Hold = "reply"
    label_from: LabelFrom = "key"
    api_key: str | None = None
    terms: Terms = field(default_factory=Terms)
    max_body_bytes: int = 64 << 20
    connect_timeout_s: float = 5.0

    def shown(self) -> dict[str, Any]:
        """For the status page; no keys."""
        return {
            "llm": [worker.name for worker in self.llm.workers]
            if isinstance(self.llm, Fleet)
            else self.llm.name,
            "tools": self.tools.name,
            "tool_path": self.tool_path,
            "hold": self.hold,
            "label_from": self.label_from,
            "sample_concurrency": self.batch.sample_concurrency,
            "environment_concurrency": self.batch.environment_concurrency,
            "environment_policy": self.batch.environment_policy,
            "service": self.batch.service,
            "batch": self.batch.name,
            "record": self.batch.record,
            "history": self.batch.history,
            **{name: getattr(self.terms, name) for name in self.terms.__slots__},
        }


class Sidecar:
    """The HTTP application, for one event loop, inside the batch."""

    def __init__(
        self, settings: Settings, trajectories: Trajectories, llm: Upstream, tools: Upstream
    ) -> None:
        self._settings = settings
        self._trajectories = trajectories
        self._llm = LlmSide(
            trajectories,
            llm,
            label_from=settings.label_from,
            api_key=settings.api_key,
            hold=settings.hold,
        )
        self._tools = ToolSide(trajectories, tools, retry_after_s=settings.terms.queue_deadline_s or 0)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=self._settings.max_body_bytes, middlewares=[self._errors])
        app.router.add_get("/coresched/status", self._status)
        app.router.add_delete("/coresched/trajectories/{label:.+}", self._end)
        app.router.add_route("*", "/coresched/{path:.*}", self._not_found)
        app.router.add_post(CHAT_PATH, self._llm.chat)
        app.router.add_route("*", "/v1/{path:.*}", self._llm.other)
        app.router.add_post(self._settings.tool_path, self._tools.call)
        app.router.add_route("*", "/{path:.*}", self._tools.other)
        return app

    async def _status(self, request: web.Request) -> web.Response:
        shown_now = status(self._trajectories, self._settings.shown())
        return web.Response(body=msgspec.json.encode(shown_now), content_type="application/json")

    async def _end(self, request: web.Request) -> web.Response:
        label = request.match_info["label"]
        trajectory = self._trajectories.present(label)
        if trajectory is None:
            raise RefusedError(404, "not_found", f"no trajectory {shown(label)} is present")
        trajectory.end(withdrawn=False)
        await trajectory.closed()
        return web.Response(status=204)

    async def _not_found(self, request: web.Request) -> web.Response:
        raise RefusedError(
            404,
            "not_found",
            f"{request.method} {shown(request.path)} is not served; GET /coresched/status, or DELETE "
            "/coresched/trajectories/LABEL",
        )

    @web.middleware
    async def _errors(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except RefusedError as refused:
            return answer(refused)
        except TrajectoryEndedError:
            said = "the trajectory was ended while this request waited, which was not executed"
            return answer(RefusedError(409, "trajectory_ended", said))
        except CallGivenUpError:
            said = "the tool call waited when it was made again, or its trajectory went on; not executed"
            return answer(RefusedError(503, "call_given_up", said, retry_after_s=RETRY_AFTER_S))
        except (BatchClosedError, ServiceError, TransitionError) as error:
            return answer(RefusedError(503, "batch_failed", f"the batch hands out no slots: {error}"))
        except web.HTTPRequestEntityTooLarge:
            limit = self._settings.max_body_bytes / (1 << 20)
            said = f"the body must have at most {limit:g} MiB; start with a larger --max-body-mib"
            return answer(RefusedError(413, "body_too_large", said))
        except web.HTTPException as error:
            return answer(RefusedError(error.status, "invalid_request", error.reason))


@dataclass(frozen=True, slots=True)
class RunningSidecar:
    """Where it accepts connections, and what it knows."""

    address: str
    trajectories: Trajectories
    _server: asyncio.AbstractServer
    _runner: web.AppRunner

    async def stop(self, *, at_once: asyncio.Event) -> None:
        """Accept nothing more; let open requests go on for the grace period or until `at_once` is set."""
        self._server.close()
        remove_socket(self.address)
        stopping = asyncio.create_task(self._runner.cleanup())
        hurried = asyncio.create_task(at_once.wait())
        await asyncio.wait((stopping, hurried), return_when=asyncio.FIRST_COMPLETED)
        for task in (hurried, stopping):
            task.cancel()
        await asyncio.gather(hurried, stopping, return_exceptions=True)


@asynccontextmanager
async def running(
    settings: Settings, address: TcpAddress | UnixAddress, *, grace_s: float = 0
) -> AsyncIterator[RunningSidecar]:
    """A sidecar that accepts connections; in the end what is still open ends at once.

    Raises InputError if the address cannot be used, and what entering the batch raises.
    """
    async with AsyncExitStack() as ends:
        session = await ends.enter_async_context(upstream_session(settings.connect_timeout_s))
        record = None
        if settings.batch.record is not None:
            record = RequestRecord(settings.batch.record, "gateway", field="--record")
            ends.push_async_callback(asyncio.to_thread, record.close)
        batch = make_batch(settings.batch)
        await ends.enter_async_context(batch)
        if isinstance(settings.llm, Fleet):
            checks = HealthChecks(
                settings.llm, session, interval_s=HEALTH_INTERVAL_S, timeout_s=settings.connect_timeout_s
            )
            await checks.first_round()
            checking = asyncio.create_task(checks.run())
            ends.callback(checking.cancel)
            llm = Upstream(settings.llm, session, "the LLM", record)
        else:
            llm = Upstream(OneServer(settings.llm), session, "the LLM", record)
        tools = Upstream(OneServer(settings.tools), session, "the tool server")
        trajectories = Trajectories(
            batch, settings.terms, environment_concurrency=settings.batch.environment_concurrency
        )
        ends.push_async_callback(trajectories.close)
        app = Sidecar(settings, trajectories, llm, tools).application()
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=grace_s)
        await runner.setup()
        connections = runner.server
        assert connections is not None, "the runner was set up"
        server, listening = await listen(lambda: Connection(connections, "sidecar", _refuse), address)
        started = RunningSidecar(listening, trajectories, server, runner)
        try:
            yield started
        finally:
            await started.stop(at_once=asyncio.Event())


async def serve(
    settings: Settings,
    address: TcpAddress | UnixAddress,
    *,
    grace_s: float,
    announce: Callable[[str], None],
    metrics: TcpAddress | UnixAddress | None = None,
    announce_metrics: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, then let open requests go on for `grace_s` seconds.

    `announce` is called with the address once it accepts connections, `announce_metrics` with the URL of the
    metrics. A second signal ends what is still open at once. Raises as `running`.
    """
    from coresched.metrics.endpoint import metrics_endpoint

    async with AsyncExitStack() as ends:
        sidecar = await ends.enter_async_context(running(settings, address, grace_s=grace_s))
        url = None
        if metrics is not None:
            collect = SidecarCollector(sidecar.trajectories).collect
            url = await ends.enter_async_context(metrics_endpoint(metrics, collect))
        first, second = stop_signals()
        announce(sidecar.address)
        if url is not None:
            announce_metrics(url)
        await first.wait()
        await sidecar.stop(at_once=second)


def _refuse(status: int, said: str) -> web.Response:
    return answer(RefusedError(status, "invalid_request" if status < 500 else "internal", said))
