"""One case: what is advised for one batch, and how it does on other batches of the kind."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Final

from bench.advised.cases import as_it_is
from bench.advised.shares import Shares, shares
from bench.rivals.cases import Case, trajectories
from coresched.lab.advice.advice import Advice, advise
from coresched.lab.advice.trials import JUDGED_FROM
from coresched.lab.simulator.run import run_workload
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import build_workload

TRACE: Final = 0
"""Seed of the batch that `advise` is given, which is none of those that it is judged on."""
OTHER_ORDER: Final = 10_000
"""Added to a seed, it gives another submission order of the same batch."""
HISTORY: Final = "history.jsonl"
"""What the file is called in the recipe; `advise` itself takes the lengths from the trace."""


@dataclass(frozen=True)
class Trial:
    """What was advised for a case, and its makespans on the held-out seeds beside the paper's method's."""

    case: Case
    advised: RunSettings
    """The paper's method itself where the advice is to leave it as it is."""
    leave: bool
    said: str
    """What is advised, in one line."""
    searched_s: float
    """CPU seconds that the advice took."""
    searched_runs: int
    coordinated_saved: float
    """The median that the advice itself gives for RP, LBCH and CAAS at the values of the capacity model."""
    makespans_s: Sequence[float]
    method_s: Sequence[float]
    method_again_s: Sequence[float]
    """The paper's method on the same batches in another submission order."""

    @property
    def saved(self) -> Shares:
        """Share of the paper's method's makespan, seed by seed."""
        return shares([1 - mine / its for mine, its in zip(self.makespans_s, self.method_s, strict=True)])

    @property
    def noise(self) -> float:
        """How much the paper's method is off from itself in another order, on the worst of as many seeds."""
        pairs = zip(self.method_again_s, self.method_s, strict=True)
        return max(abs(1 - again / once) for again, once in pairs)


def try_case(case: Case, seeds: Sequence[int], by_history: bool) -> Trial:
    """Search on the batch of TRACE, then run what is advised on the batches of ``seeds``."""
    began = time.process_time()
    advice = advise(
        trajectories(case.source, TRACE),
        case.model,
        workers=case.settings.workers,
        environment_concurrency=case.settings.environment_concurrency,
        as_it_is=as_it_is(case.settings),
        absent_environment_s=case.source.absent_environment_s,
        history=HISTORY if by_history else None,
        expectation_noise=case.settings.expectation_noise,
    )
    took = time.process_time() - began
    advised = case.settings if advice.leave else advice.advised.settings
    times: list[list[float]] = [[], [], []]
    for seed in seeds:
        for found, settings, order in zip(
            times, (advised, case.settings, case.settings), (seed, seed, seed + OTHER_ORDER), strict=True
        ):
            found.append(_makespan_s(case, settings, seed, order))
    return Trial(
        case, advised, advice.leave, said(advice), took, advice.runs, advice.coordinated.saved.median, *times
    )


def try_all(
    cases: Sequence[Case], seeds: int, by_history: bool, done: Callable[[int, int], None]
) -> list[Trial]:
    """Every case on ``seeds`` held-out seeds. ``done(cases, of)`` is called after each."""
    held_out = range(JUDGED_FROM, JUDGED_FROM + seeds)
    found: dict[str, Trial] = {}
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("forkserver")) as pool:
        running = [pool.submit(try_case, case, held_out, by_history) for case in cases]
        for future in as_completed(running):
            trial = future.result()
            found[trial.case.name] = trial
            done(len(found), len(cases))
    return [found[case.name] for case in cases]


def said(advice: Advice) -> str:
    """What is advised, in one line."""
    if advice.leave:
        return "leave it as it is"
    return "; ".join(
        f"{name.replace('_', '-')} {value:.3g}"
        if isinstance(value, float)
        else f"{name.replace('_', '-')} {value}"
        for change in advice.contributions
        for name, value in change.advised.items()
        if change.as_it_is.get(name) != value
    )


def _makespan_s(case: Case, settings: RunSettings, seed: int, order: int) -> float:
    prepared = build_workload(
        trajectories(case.source, seed),
        page_tokens=case.model.page_tokens,
        seed=order,
        absent_environment_s=case.source.absent_environment_s,
    )
    return run_workload(prepared, replace(settings, seed=order), case.model).metrics.makespan_s
