"""What a batch demands of a worker's memory at its worst moment, found by replaying it."""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

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


Change = tuple[float, int, int, int]
"""(time, KV units, running trajectories, idle trajectories): what changes at that time."""


class Replay:
    """Chains laid out once for one engine, to be replayed at many concurrencies.

    Chains do not slow each other down here. All of the first ``concurrency`` start together, as a batch does,
    so the peak of that cohort is in it.
    """

    def __init__(self, chains: Sequence[Chain], footing: Footing) -> None:
        self._footing = footing
        self._tracks = [_track(chain, footing) for chain in chains]
        self._durations = [track[-1][0] for track in self._tracks]
        self._prefixes = [(chain.group, chain.shared_tokens) for chain in chains]

    def peak(self, concurrency: int, order: Sequence[int] | None = None) -> Demand:
        """Replay ``concurrency`` at a time, in the given order of the chains (their own by default)."""
        free = [0.0] * min(concurrency, len(self._tracks))
        changes: list[Change] = []
        uses: dict[tuple[str | None, int], list[tuple[float, int]]] = {}
        for number in range(len(self._tracks)) if order is None else order:
            start = free[0]
            heapq.heapreplace(free, start + self._durations[number])
            changes += [(start + t, kv, running, idle) for t, kv, running, idle in self._tracks[number]]
            if self._prefixes[number][1]:
                end = start + self._durations[number]
                uses.setdefault(self._prefixes[number], []).extend([(start, 1), (end, -1)])
        for (_, tokens), moments in uses.items():
            _charge_shared(self._footing.shared_units(tokens), moments, changes)
        return _peaks(changes, self._footing)


def _track(chain: Chain, footing: Footing) -> list[Change]:
    """One chain's changes from its start on; the last is its end."""
    changes: list[Change] = []
    t, held, running, idle = 0.0, 0, 0, 0
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
    return changes


def _charge_shared(units: int, uses: list[tuple[float, int]], changes: list[Change]) -> None:
    users = 0
    for t, change in sorted(uses):
        before, users = users, users + change
        if (before == 0) != (users == 0):
            changes.append((t, units if users else -units, 0, 0))


def _peaks(changes: list[Change], footing: Footing) -> Demand:
    kv = running = idle = 0
    most_kv = most_state = most_units = most_running = 0
    changes.sort(key=itemgetter(0))
    ends = [later[0] for later in changes[1:]]
    for (t, kv_change, running_change, idle_change), next_t in zip(changes, [*ends, math.inf], strict=True):
        kv += kv_change
        running += running_change
        idle += idle_change
        if next_t == t:
            continue  # what ends and what begins at the same moment never stand side by side
        state = running * footing.running_units + idle * footing.idle_units
        if kv > most_kv:
            most_kv = kv
        if state > most_state:
            most_state = state
        if kv + state > most_units:
            most_units = kv + state
        if running > most_running:
            most_running = running
    return Demand(most_kv, most_state, most_units, most_running)
