"""Each attempt at a sample is one sample of the gate: admitted before it works, ended however it ends."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote

import anyio
from coresched_harness.waits import waits_of

from coresched.client.gate import Gate, Sample
from coresched_inspect import report
from coresched_inspect.off_the_clock import off_the_clock
from coresched_inspect.stages import Stages

STORE_KEY = "coresched"
"""Where a sample's store has its waits, as the log viewer shows it."""

_READABLE = "/:@._-~+,=()[]"


class GatedSample:
    """An attempt at a sample that is under way."""

    def __init__(self, sample: Sample, limited_residence: bool) -> None:
        self.began = time.monotonic()
        self.sample = sample
        self.stages = Stages(sample, off_the_clock, self.note)
        self.failed = False
        """Whether inspect has ended the attempt with an error."""
        self.is_over = False
        self._store: Any = None
        self._limited_residence = limited_residence

    @asynccontextmanager
    async def residence(self) -> AsyncIterator[None]:
        """A resident slot of the gate, where its C_R is set; waited for before the block."""
        if not self._limited_residence:
            yield
            return
        async with self.sample.resident():
            yield

    def waits(self) -> dict[str, Any]:
        """What the log says of it; seconds, so far."""
        return {**waits_of(self.sample), "environment_stages": self.stages.count}

    @property
    def is_started(self) -> bool:
        """Whether its solver has begun; before that its sandbox is set up."""
        return self._store is not None

    def start(self) -> None:
        """In the context of the attempt: its waits are written into its store and transcript from now on."""
        from inspect_ai.log import transcript
        from inspect_ai.util import store

        self._store = store()
        self.note()
        transcript().info(self.waits(), source="coresched")

    def note(self) -> None:
        """Bring what the log says up to date."""
        if self._store is not None:
            self._store.set(STORE_KEY, self.waits())


_current: ContextVar[GatedSample | None] = ContextVar("coresched_inspect_sample", default=None)


def sample_of_context() -> GatedSample | None:
    """The attempt that this context is a part of, if it is gated and not over."""
    gated = _current.get()
    return None if gated is None or gated.is_over else gated


def label_of(task: str, sample: object, epoch: int, attempt: int, uuid: str) -> str:
    """The trajectory label of an attempt: readable, fit for a header, and used once.

    ``uuid`` is inspect's own for this run of the sample, the one in its log; attempts at it share that.
    """
    names = [quote(str(name), safe=_READABLE)[:120] for name in (task, sample)]
    return f"{names[0]}/{names[1]}/epoch-{epoch}/attempt-{attempt}/{uuid}"


def gated_attempt(original: Callable[..., Awaitable[Any]], gate: Callable[[], Gate | None]) -> Any:
    """inspect's `_task_run_sample_attempt`, with the attempt a sample of the gate.

    It asks for the sample's state once it has a place among inspect's max_samples, and starts no clock
    before it has got it: that is where it waits for admission.
    """

    @functools.wraps(original)
    async def run_attempt(*args: Any, **options: Any) -> Any:
        through = gate()
        if through is None:
            return await original(*args, **options)
        async with AsyncExitStack() as until_end:
            make_state = options["create_sample_state"]

            async def admitted_state(uuid: str | None) -> Any:
                sample, state = await make_state(uuid)
                label = label_of(
                    options["task_name"], sample.id, state.epoch, options["attempt"].number, state.uuid
                )
                await until_end.enter_async_context(_admitted(through, label, options["run_id"]))
                return sample, state

            return await original(*args, **{**options, "create_sample_state": admitted_state})

    return run_attempt


@asynccontextmanager
async def _admitted(gate: Gate, label: str, run: str) -> AsyncIterator[None]:
    sample = gate.sample(label)
    await sample.__aenter__()
    gated = GatedSample(sample, gate.resident_concurrency is not None)
    _current.set(gated)
    kind: type[BaseException] | None = None
    try:
        yield
    except BaseException as error:
        kind = type(error)
        raise
    finally:
        _current.set(None)
        gated.is_over = True  # for tasks that began in it and go on
        if gated.failed and kind is None:  # inspect keeps the error to itself
            kind = Exception
        with anyio.CancelScope(shield=True):
            await gated.stages.close()
            await sample.__aexit__(kind, None, None)
        report.of_run(run).ended(gated, failed=kind is not None)
