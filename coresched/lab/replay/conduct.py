"""One replay from its checks to the files of its run."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coresched.errors import InputError
from coresched.lab.replay.endpoint import Endpoint, flush_caches, http_session, look, protocol_for
from coresched.lab.replay.events import EventLog
from coresched.lab.replay.plan import Plan, ReplaySettings, require_context
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.protocol import ProtocolName
from coresched.lab.replay.record import EVENTS, Client, new_folder, write_run, write_summary
from coresched.lab.replay.run import Ending, Replay, embedded_batch
from coresched.lab.replay.service import Service
from coresched.lab.replay.summary import ReplayMetrics, measure

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
    progress: Callable[[int, int], None] = lambda turns, samples: None,
) -> Conducted:
    """Check, replay, measure, and write all of it to ``folder``.

    SIGINT, SIGTERM and SIGHUP end the replay, and what there is by then is measured. Raises InputError,
    nothing having been sent, for endpoints or a service that cannot be used, or a folder that is in use.
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
        )
        with EventLog(folder / EVENTS) as log:
            replay = Replay(plan, settings, tokens, endpoints, spoken, session, log, progress)
            wall, cpu = time.perf_counter(), time.process_time()
            with _stopped_by_signals() as stop:
                ending = await replay.run(batch, stop)
            client = Client(time.perf_counter() - wall, time.process_time() - cpu)
    metrics = measure(log.events, samples=len(plan.samples), endpoints=[one.name for one in endpoints])
    write_summary(folder, ending, metrics, client)
    return Conducted(ending, metrics, client)


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
