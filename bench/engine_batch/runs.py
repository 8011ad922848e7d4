"""One set-up after another on servers that stay up, round by round."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.engine_batch.engines import EngineKind, Engines, service
from bench.engine_batch.setups import SetUp
from coresched.lab.replay.conduct import Conducted, conduct
from coresched.lab.replay.plan import make_plan
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.service import Service
from coresched.lab.replay.summary import ReplayMetrics
from coresched.trajectory.schema import Trajectory


@dataclass(frozen=True)
class Comparison:
    """What all runs share. The workload's pauses are 1/``seconds_over`` of those recorded."""

    kind: EngineKind
    setups: Sequence[SetUp]
    workload: Sequence[Trajectory]
    environment_concurrency: int
    seconds_over: float = 1.0

    @property
    def new_tokens(self) -> int:
        """Prompt tokens that no turn before has had: what must be computed whatever is cached."""
        return sum(
            one.initial_prompt_tokens + sum(turn.env.response_tokens for turn in one.turns[:-1] if turn.env)
            for one in self.workload
        )


@dataclass(frozen=True)
class Run:
    """One finished replay, and the CPU that was taken meanwhile, in seconds of the wall clock and of CPUs."""

    round: int
    setup: SetUp
    sample_concurrency: int
    metrics: ReplayMetrics
    wall_s: float
    engines_cpu_s: float
    client_cpu_s: float


class StoppedError(RuntimeError):
    """A replay that did not come to its end; the message says why."""


def all_runs(comparison: Comparison, rounds: int, folder: Path) -> Iterator[Run]:
    """Boot the servers, then run the set-ups in turns, every second round backwards, from empty caches.

    The folder of each run is kept in ``folder``. Raises NoServerError, StoppedError.
    """
    with ExitStack() as stack:
        pairs = {
            planned: stack.enter_context(comparison.kind.booted(planned=planned))
            for planned in sorted({setup.planned for setup in comparison.setups})
        }
        for number in range(rounds):
            for setup in comparison.setups if number % 2 == 0 else reversed(comparison.setups):
                yield _run(comparison, setup, pairs[setup.planned], number, folder)


def _run(comparison: Comparison, setup: SetUp, pair: Engines, number: int, folder: Path) -> Run:
    kind = comparison.kind
    settings = setup.settings(
        kind.sample_concurrency,
        comparison.environment_concurrency,
        speed=kind.speed,
        seconds_over=comparison.seconds_over,
    )
    name = f"{setup.name}-{number}"
    with ExitStack() as stack:
        at = None
        if setup.service:
            at = Service(stack.enter_context(service([one.name for one in pair.endpoints])), name)
        wall, cpu = time.perf_counter(), pair.cpu_s()
        conducted: Conducted = asyncio.run(
            conduct(
                make_plan(comparison.workload),
                settings,
                pair.endpoints,
                tokens=TokenSource(0, *kind.token_ids),
                folder=folder / name,
                traces=[],
                service=at,
                flush_cache=True,
            )
        )
        wall, cpu = time.perf_counter() - wall, pair.cpu_s() - cpu
    if conducted.ending.status != "completed":
        raise StoppedError(f"{setup.name}: {conducted.ending.reason}")
    return Run(
        number, setup, settings.sample_concurrency, conducted.metrics, wall, cpu, conducted.client.cpu_s
    )
