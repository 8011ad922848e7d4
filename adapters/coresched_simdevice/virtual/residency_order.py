"""Whether the passes of a run are those of routing-residency and its guard, replayed in plain Python."""

from coresched.core.reference import ReferenceResidencyPolicy, ReferenceTurnGaps, ReferenceWaiting
from coresched_simdevice.virtual.order import OrderChecker
from coresched_simdevice.virtual.passes import Cached, Offered, ResidencyPass, Slots

KV_GROWTH = 1.15


class ResidencyChecker(OrderChecker[ResidencyPass]):
    """Of routing-residency, for a model with recurrent states or (``states`` False) without.

    From outside came who waits, runs and ended, what SGLang's tree has of each waiting prompt, and how much
    room there is. Who is cached and who is live, the order, and who is held back are found anew.
    """

    def __init__(self, states: bool = True) -> None:
        super().__init__("routing-residency")
        self._states = states
        self._gaps = ReferenceTurnGaps()
        self._entered: set[str] = set()
        self._warm: set[str] = set()
        self._live: dict[str, int] = {}
        self.held_back = 0
        """Passes that ended with a request held back."""
        self.started_beside = 0
        """Requests that were not cached and started beside others."""

    def ordered(self, one: ResidencyPass, waiting: list[ReferenceWaiting]) -> list[ReferenceWaiting]:
        self._learn_gaps(one)
        policy = ReferenceResidencyPolicy()
        found = {each.id: each for each in one.cached}
        for request in waiting:
            if request.label is not None and request.id in found and self._is_cached(found[request.id]):
                policy.resident(request.label)
        ordered = policy.order(waiting)
        self._warm = {request.id for request in ordered if request.label in policy}
        return ordered

    def admitted(self, one: ResidencyPass, requests: list[ReferenceWaiting]) -> None:
        self._learn_live(one)
        offered = [each.id for each in one.offered]
        self.same("offered", offered, one.ordered[: len(offered)])
        may_start = self._may_start(one)
        cold = [each for each in one.offered if each.id not in self._warm and not each.held_back]
        if any(not each.alone for each in cold):
            live = self._live.keys() | {each.label for each in one.waiting}
            self.same("live trajectories evicted for a new one", live.intersection(one.lost), [])
        for each in one.offered:
            waits = self._waits(each, may_start)
            if each.held_back != waits:
                raise self.error(
                    f"{each.id} was {'held back' if each.held_back else 'not held back'}; "
                    f"{may_start} may start cold, {sum(self._live.values())} tokens are live, {each}"
                )
            if each.id not in self._warm:
                may_start = 0 if waits or not self._has_kv(each) else may_start - 1
        self.started_beside += sum(not each.alone for each in cold)
        waiting = [each.id for each in one.offered if each.held_back]
        self.held_back += bool(waiting)
        self.same("held back", waiting, offered[-1:] if waiting else [])
        if waiting:
            self.same("admitted before it", one.admitted, offered[:-1])

    def _learn_gaps(self, one: ResidencyPass) -> None:
        for each in one.ended:
            self._gaps.ended(each.label, each.forward)
        for queued in one.waiting:
            if queued.id not in self._entered and queued.label is not None:
                self._gaps.began(queued.label, one.forward)
            self._entered.add(queued.id)

    def _learn_live(self, one: ResidencyPass) -> None:
        if one.held is None:
            return
        waiting = {each.label for each in one.waiting}
        for each in one.held:
            live = each.label in waiting or self._gaps.expected(each.label, one.forward)
            if live != each.live:
                raise self.error(f"{each.label} was taken for {'live' if each.live else 'not live'}")
        self._live = {each.label: each.tokens for each in one.held if each.live}

    def _is_cached(self, seen: Cached) -> bool:
        """By its last state, or by half of the KV that was inserted."""
        return seen.tokens >= seen.inserted > 0 if self._states else 2 * seen.tokens >= seen.inserted > 0

    def _may_start(self, one: ResidencyPass) -> int:
        """How many requests may start that are not cached, by the state slots."""
        starting = one.ordered[: one.places]
        cached = sum(each in self._warm for each in starting)
        cold = len(starting) - cached
        if one.slots is None:
            return cold
        live = len(self._live) if one.live_asked else len(one.resident)
        running = len(one.running)
        return max((n for n in range(cold + 1) if takes(one.slots, n, live, running, cached)), default=0)

    def _waits(self, each: Offered, may_start: int) -> bool:
        if each.id in self._warm or each.alone:
            return False
        return not may_start or not self._has_kv(each)

    def _has_kv(self, each: Offered) -> bool:
        """Beside all that is evictable, or else all that is live; both may grow."""
        live = sum(self._live.values())
        return each.needed <= each.room - KV_GROWTH * min(each.evictable, live)


def takes(slots: Slots, cold: int, live: int, running: int, cached: int) -> bool:
    """Whether so many may start without a state, while every live trajectory keeps its own.

    One that runs has S slots, its state among them. Of ``live`` trajectories, which have one each, ``cached``
    start too.
    """
    free = cold * slots.per_request + cached * (slots.per_request - 1)
    whole = (cold + running + cached) * slots.per_request + live - cached
    return free <= slots.free and whole <= slots.size
