"""Timing several subjects of one job, so that what disturbs the machine disturbs all of them."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import thread_time

Subject = Callable[[int], object]
"""Does that many operations, one after another, and leaves its state as large as it found it."""


@dataclass(frozen=True)
class Effort:
    """How often each subject is timed, and how many seconds one timing should last."""

    repeats: int
    repeat_s: float


FULL = Effort(repeats=21, repeat_s=0.02)
QUICK = Effort(repeats=3, repeat_s=0.001)


def timed(action: Callable[[], object]) -> float:
    """CPU seconds of one call, garbage collected before it and the collector off during it.

    This thread's CPU time: when another program has the core, that is not the subject's cost.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        start = thread_time()
        action()
        return thread_time() - start
    finally:
        if was_enabled:
            gc.enable()


def interleaved(timings: Sequence[Callable[[], float]], repeats: int) -> list[list[float]]:
    """The results of each timing, taken in turns; every round begins with another one."""
    results: list[list[float]] = [[] for _ in timings]
    for number in range(repeats):
        for place in range(len(timings)):
            chosen = (number + place) % len(timings)
            results[chosen].append(timings[chosen]())
    return results


def operations_lasting(subject: Subject, seconds: float) -> int:
    """How many operations take at least ``seconds``; finding out warms the subject up."""
    operations = 1
    while True:
        start = thread_time()
        subject(operations)
        taken = thread_time() - start
        if taken >= seconds:
            return operations
        # At most tenfold: the first operations are slower than the rest.
        growth = min(1.2 * seconds / taken, 10.0) if taken > 0 else 10.0
        operations = max(operations + 1, int(operations * growth))


def seconds_an_operation(subjects: Sequence[Subject], effort: Effort) -> list[list[float]]:
    """For each subject, the seconds an operation of every repeat."""

    def timing(subject: Subject) -> Callable[[], float]:
        operations = operations_lasting(subject, effort.repeat_s)
        return lambda: timed(partial(subject, operations)) / operations

    return interleaved([timing(subject) for subject in subjects], effort.repeats)
