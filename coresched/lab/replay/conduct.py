"""One replay from its checks to the files of its run."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from coresched.errors import InputError
from coresched.lab.replay.endpoint import Endpoint, flush_caches, http_session, look, protocol_for
from coresched.lab.replay.events import EventLog
from coresched.lab.replay.failure import ReplayError
from coresched.lab.replay.gateway import LOG, gateway_before
from coresched.lab.replay.plan import Plan, ReplaySettings, require_context
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.protocol import ProtocolName
from coresched.lab.replay.record import EVENTS, Client, Place, new_folder, write_run, write_summary
from coresched.lab.replay.run import Ending, Replay, embedded_batch
from coresched.lab.replay.service import Service
from coresched.lab.replay.summary import ReplayMetrics, measure
from coresched.lab.replay.warm_up import warm_up as send_warm_up

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Conducted:
    """What came of a replay; the same is in its folder."""

    ending: Ending
    metrics: ReplayMetrics
    client: Client


async def conduct(
    plan: Plan,
    settings: ReplaySettings,
    endpoints: Sequence[Endpoint],
    *,
    tokens: TokenSource,
    folder: Path,
    traces: Sequence[Path],
    protocol: ProtocolName | None = None,
    model: str | None = None,
    service: Service | None = None,
    flush_cache: bool = False,
    warm_up: int = 0,
    place: Place | None = None,
    progress: Callable[[int, int], None] = lambda turns, samples: None,
) -> Conducted:
    """Check, replay, measure, and write all of it to ``folder``.

    ``warm_up`` requests go to each endpoint first, and are no part of what is measured; ``place`` is that of
    the run among several. SIGINT, SIGTERM and SIGHUP end the replay, and what there is by then is measured.
    Raises InputError, nothing having been sent, for endpoints or a service that cannot be used, or a folder
    that is in use.
    """
    async with http_session(settings.request_timeout_s) as session:
        served = await look(session, endpoints)
        contexts = [one.longest_context for one in served if one.longest_context is not None]
        if contexts:
            require_context(plan, min(contexts))
        spoken = protocol_for(protocol, served, model)
        try:
            batch = embedded_batch(settings, endpoints) if service is None else service.connect(settings)
        except ValueError as error:
            raise InputError(str(error)) from None
        if service is not None:
            await service.check(settings, endpoints)
        new_folder(folder)
        if flush_cache:
            await flush_caches(session, endpoints, served)
        async with _front(settings, endpoints, folder, session) as (sent_to, lost):
            write_run(
                folder,
                traces=traces,
                plan=plan,
                settings=settings,
                tokens=tokens,
                endpoints=endpoints,
                served=served,
                path=spoken.path,
                service=None if service is None else service.target,
                batch=None if service is None else service.batch,
                flush_cache=flush_cache,
                warm_up=warm_up,
                place=place,
            )

            async def prepare() -> None:
                await send_warm_up(
                    session, endpoints, spoken, tokens, requests=warm_up, patience_s=settings.patience_s
                )
                if flush_cache:
                    await flush_caches(session, endpoints, served)

            with EventLog(folder / EVENTS) as log, _stopped_by_signals() as stop:
                names = {endpoint.url: endpoint.name for endpoint in endpoints}
                replay = Replay(
                    plan, settings, tokens, sent_to, spoken, session, log, progress, workers=names
                )
                lost(replay.give_up)
                early = await _unless_stopped(prepare, stop) if warm_up else None
                wall, cpu = time.perf_counter(), time.process_time()
                ending = early or await replay.run(batch, stop)
                client = Client(time.perf_counter() - wall, time.process_time() - cpu)
    metrics = measure(log.events, samples=len(plan.samples), endpoints=[one.name for one in endpoints])
    write_summary(folder, ending, metrics, client)
    return Conducted(ending, metrics, client)


GiveUp = Callable[[str], None]


@asynccontextmanager
async def _front(
    settings: ReplaySettings, endpoints: Sequence[Endpoint], folder: Path, session: aiohttp.ClientSession
) -> AsyncIterator[tuple[Sequence[Endpoint], Callable[[GiveUp], None]]]:
    """Where turns are sent to, and how to hear why that is gone."""
    if settings.router != "gateway":
        yield endpoints, lambda give_up: None
        return
    async with gateway_before(
        endpoints, load_bound=settings.load_bound, folder=folder, session=session
    ) as gateway:

        def lost(give_up: GiveUp) -> None:
            gateway.ended.add_done_callback(
                lambda task: give_up(
                    f"the gateway ended with exit code {task.result()}; {folder / LOG} may say why"
                )
            )

        yield [gateway.endpoint], lost


async def _unless_stopped(prepare: Callable[[], Awaitable[None]], stop: asyncio.Event) -> Ending | None:
    """None once that is done; how the replay ended where it is not."""
    preparing, stopping = asyncio.ensure_future(prepare()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((preparing, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            return Ending("interrupted", "stopped by a signal")
        preparing.result()
        return None
    except (ReplayError, InputError) as error:
        return Ending("failed", str(error))
    finally:
        for task in (preparing, stopping):
            task.cancel()
        await asyncio.gather(preparing, stopping, return_exceptions=True)


@contextmanager
def _stopped_by_signals() -> Iterator[asyncio.Event]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOPPING_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in STOPPING_SIGNALS:
            loop.remove_signal_handler(number)
