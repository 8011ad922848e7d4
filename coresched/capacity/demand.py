"""What a batch demands of a worker's memory at its worst moment, found by replaying it."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coresched.capacity.profile import Chain


@dataclass(frozen=True)
class Footing:
    """How one engine charges a trajectory.

    ``kv_units(tokens)`` are the pages or blocks of that many own tokens; ``shared_units(tokens)`` those of a
    shared prefix. A running trajectory holds ``running_units`` of state, a waiting one ``idle_units``.
    """

    kv_units: Callable[[int], int]
    shared_units: Callable[[int], int]
    running_units: int
    idle_units: int


@dataclass(frozen=True)
class Demand:
    """Peaks over the replay, each at its own moment except ``units``, the peak of both kinds together."""

    kv_units: int
    state_units: int
    units: int
    running: int
    """Most trajectories running at once."""


def peak_demand(chains: Sequence[Chain], concurrency: int, footing: Footing) -> Demand:
    """Replay the chains, ``concurrency`` at a time in the given order, and return the peaks.

    Chains do not slow each other down here. All of the first ``concurrency`` start together, as a batch does,
    so the peak of that cohort is in it.
    """
    free = [0.0] * min(concurrency, len(chains))
    changes: list[tuple[float, int, int, int]] = []  # (time, KV units, running, idle)
    prefixes: dict[tuple[str | None, int], list[tuple[float, int]]] = {}
    for chain in chains:
        start = heapq.heappop(free)
        end = _charge(chain, start, footing, changes)
        heapq.heappush(free, end)
        if chain.shared_tokens:
            prefixes.setdefault((chain.group, chain.shared_tokens), []).extend([(start, 1), (end, -1)])
    for (_, tokens), uses in prefixes.items():
        _charge_shared(footing.shared_units(tokens), uses, changes)
    return _peaks(changes, footing)


def _charge(
    chain: Chain, start: float, footing: Footing, changes: list[tuple[float, int, int, int]]
) -> float:
    t, held, running, idle = start, 0, 0, 0
    for stage in chain.stages:
        units = footing.kv_units(max(0, stage.tokens - chain.shared_tokens))
        changes.append((t, units - held, 1 - running, -idle))
        held, running, idle = units, 1, 0
        t += stage.inference_s
        if stage.waiting_s > 0:
            changes.append((t, 0, -1, 1))
            running, idle = 0, 1
            t += stage.waiting_s
    changes.append((t, -held, -running, -idle))
    return t


def _charge_shared(
    units: int, uses: list[tuple[float, int]], changes: list[tuple[float, int, int, int]]
) -> None:
    users = 0
    for t, change in sorted(uses):
        before, users = users, users + change
        if (before == 0) != (users == 0):
            changes.append((t, units if users else -units, 0, 0))


def _peaks(changes: list[tuple[float, int, int, int]], footing: Footing) -> Demand:
    kv = running = idle = 0
    peak = [0, 0, 0, 0]
    changes.sort(key=lambda change: change[0])
    last = len(changes) - 1
    for place, (t, kv_change, running_change, idle_change) in enumerate(changes):
        kv += kv_change
        running += running_change
        idle += idle_change
        if place < last and changes[place + 1][0] == t:
            continue  # what ends and what begins at the same moment never stand side by side
        state = running * footing.running_units + idle * footing.idle_units
        peak = [max(peak[0], kv), max(peak[1], state), max(peak[2], kv + state), max(peak[3], running)]
    return Demand(*peak)
