"""How long waits, turns and environment stages took, of all batches since the service started."""

from __future__ import annotations

from collections import Counter

from coresched.metrics.histogram import STAGE_S, Histogram
from coresched.service.batches import facts
from coresched.service.batches.chains import DEPTHS, depth
from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchFact


class Latencies:
    """A listener of the recorder of batches; in seconds.

    `environment_wait_s_by_depth` has the waits for an environment slot that was granted by the depth of the
    chain, (number, sum) for each of DEPTHS: where deeper chains wait less, the policy favours depth.
    """

    def __init__(self) -> None:
        self.admission_wait_s = Histogram(STAGE_S)
        self.environment_wait_s = Histogram(STAGE_S)
        self.environment_wait_s_by_depth = [(0, 0.0)] * len(DEPTHS)
        self.turn_s = Histogram(STAGE_S)
        """Completed turns."""
        self.environment_s = Histogram(STAGE_S)
        """Completed environment stages."""
        self.turns: Counter[str] = Counter(completed=0, failed=0, lost=0)
        """By how they ended; lost with their session or their sample."""
        self.environment_stages: Counter[str] = Counter(completed=0, failed=0, expired=0, dropped=0)
        """By how they ended; dropped while they were queued. Those lost with their sample are not there."""
        self.resident_wait_s = Histogram(STAGE_S)
        self.resident_s = Histogram(STAGE_S)
        """Resident slots whose block completed."""
        self.residents: Counter[str] = Counter(completed=0, failed=0, dropped=0)
        """The same for resident slots."""
        self.sessions: Counter[str] = Counter(left=0, expired=0, closed=0)
        """By how they ended."""

    def on_fact(self, fact: BatchFact, effects: Effects) -> None:
        for record, _ in effects.admitted[effects.told_again :]:
            self.admission_wait_s.observe(record.waited_s)
        for record, _ in effects.granted:
            self.environment_wait_s.observe(record.waited_s)
            group = depth(record.turns or 0)
            number, seconds = self.environment_wait_s_by_depth[group]
            self.environment_wait_s_by_depth[group] = (number + 1, seconds + record.waited_s)
        for record, _ in effects.housed:
            self.resident_wait_s.observe(record.waited_s)
        if isinstance(fact, facts.TurnFinished):
            self.turns["failed" if fact.failed else "completed"] += 1
            if not fact.failed:
                self.turn_s.observe(effects.turns_ended[0].spent_s)
        else:
            self.turns["lost"] += len(effects.turns_ended)
        if isinstance(fact, facts.EnvironmentEnded) and not effects.told_expired:
            self.environment_stages[fact.how] += 1
            if fact.how == "completed":
                self.environment_s.observe(effects.batch.samples[fact.sample].spent_s)
        elif isinstance(fact, facts.ResidentEnded):
            self.residents[fact.how] += 1
            if fact.how == "completed":
                self.resident_s.observe(effects.batch.samples[fact.sample].resident_spent_s)
        elif effects.sessions_ended:
            self._sessions(fact, len(effects.sessions_ended))

    def _sessions(self, fact: BatchFact, ended: int) -> None:
        if isinstance(fact, facts.SessionEnded):
            self.sessions["left" if fact.left else "expired"] += 1
            ended -= 1  # the last one to leave closes the batch, and there is none then
        self.sessions["closed"] += ended
