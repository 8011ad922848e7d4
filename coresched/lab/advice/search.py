"""The search: one part after another is set to what is best for it, until nothing changes any more."""

from collections.abc import Iterable
from typing import Final

from coresched.lab.advice.parts import PARTS, Capacity, alternatives, part_of, with_part
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
    """The best configuration that is found from any start, by the mean over the seeds of the search."""
    found = [_climb(start, capacity, trials, by_history) for start in starts]
    return min(found, key=lambda settings: trials.mean_s(settings, SEARCHED))


def _climb(settings: RunSettings, capacity: Capacity, trials: Trials, by_history: bool) -> RunSettings:
    for _ in range(ROUNDS):
        before = settings
        for part in PARTS:
            settings = _best(settings, part, capacity, trials, by_history)
        if settings == before:
            break
    return settings


def _best(
    settings: RunSettings, part: str, capacity: Capacity, trials: Trials, by_history: bool
) -> RunSettings:
    """Every alternative is tried in one order of the batch, the best few in all orders."""
    samples = len(trials.trajectories)
    tried = list(alternatives(settings, part, capacity, samples, by_history=by_history))
    tried.sort(key=lambda one: trials.makespan_s(one, SEARCHED[0]))
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
