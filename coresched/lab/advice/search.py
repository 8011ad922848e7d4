"""The search: all at once by estimate, then part after part, until nothing changes any more."""

from collections.abc import Iterable
from typing import Final

from coresched.lab.advice.parts import (
    PARTS,
    Capacity,
    alternatives,
    nearby,
    part_of,
    together,
    with_part,
)
from coresched.lab.advice.trials import CONFIRMED, SEARCHED, Trials
from coresched.lab.simulator.settings import RunSettings

WORTH: Final = 0.003
"""An alternative must save this share of the makespan to be taken: less is the luck of a few orders."""
KEPT: Final = 0.01
"""A change must save this share to be advised: whoever makes it should see that it does."""
ROUNDS: Final = 4
FINALISTS: Final = 3


def search(
    starts: Iterable[RunSettings], capacity: Capacity, trials: Trials, *, by_history: bool = False
) -> RunSettings:
    """What ends the batch soonest on orders that chose nothing: a start, or what was found on the way.

    What has won on the few orders of the search alone may have won by luck.
    """
    starts = list(starts)
    samples = len(trials.trajectories)
    began = [
        _best(start, together(start, capacity, samples, by_history=by_history), trials) for start in starts
    ]
    settings = min(began, key=lambda one: trials.mean_s(one, SEARCHED))
    passed = [*starts, *began]
    for _ in range(ROUNDS):
        before = settings
        for part in PARTS:
            tried = alternatives(settings, part, capacity, samples, by_history=by_history)
            settings = _best(settings, tried, trials)
        passed.append(settings)
        settings = _best(settings, nearby(settings, samples), trials)
        passed.append(settings)
        if settings == before:
            break
    return min(dict.fromkeys(passed), key=lambda one: trials.mean_s(one, CONFIRMED))


def _best(settings: RunSettings, alternatives: Iterable[RunSettings], trials: Trials) -> RunSettings:
    """Every alternative is tried in one order of the batch, the best few in all orders."""
    tried = sorted(alternatives, key=lambda one: trials.makespan_s(one, SEARCHED[0]))
    now_s = trials.mean_s(settings, SEARCHED)
    best = min(tried[:FINALISTS], key=lambda one: trials.mean_s(one, SEARCHED), default=settings)
    return best if trials.mean_s(best, SEARCHED) < now_s * (1 - WORTH) else settings


def without_idle_changes(found: RunSettings, as_it_is: RunSettings, trials: Trials) -> RunSettings:
    """``found`` without the changes that do not pay, the least useful of them put back first."""
    while True:
        now_s = trials.mean_s(found, CONFIRMED)
        changed = [part for part in PARTS if part_of(found, part) != part_of(as_it_is, part)]
        put_back = {part: with_part(found, part, as_it_is) for part in changed}
        least = min(changed, key=lambda part: trials.mean_s(put_back[part], CONFIRMED), default=None)
        if least is None or trials.mean_s(put_back[least], CONFIRMED) * (1 - KEPT) > now_s:
            return found
        found = put_back[least]
