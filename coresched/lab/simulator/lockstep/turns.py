"""What a run tells of its turns beside the metrics that every run has."""

from collections.abc import Sequence
from dataclasses import dataclass

from coresched.lab.metrics import percentile
from coresched.lab.simulator.lockstep.workers import FinishedTurn, WorkerCounts


@dataclass(frozen=True)
class TurnMetrics:
    """Of the turns of one run on workers that report each; seconds are virtual."""

    later_turns: int
    """Turns that are not the first of their sample."""
    later_turns_without_hit: int
    """Those of them that found nothing in the cache."""
    queue_p95_s: float
    """95th percentile over the turns of the time in a worker's waiting queue (nearest rank)."""
    retractions: int
    """How often a worker took a request out of its running batch for want of memory."""
    recomputed_tokens: int
    """Prompt tokens prefilled once more, after retractions."""


def measure_turns(
    turns: Sequence[FinishedTurn], samples: int, new_prefill_tokens: int, counts: Sequence[WorkerCounts]
) -> TurnMetrics:
    """Metrics of all turns of a finished run, in the order in which they finished."""
    seen = [False] * samples
    without_hit = 0
    for turn in turns:
        without_hit += seen[turn.sample] and not turn.cached_tokens
        seen[turn.sample] = True
    return TurnMetrics(
        later_turns=len(turns) - samples,
        later_turns_without_hit=without_hit,
        queue_p95_s=percentile([turn.queue_s for turn in turns], 95),
        retractions=sum(turn.retractions for turn in turns),
        recomputed_tokens=sum(each.prefilled_tokens for each in counts) - new_prefill_tokens,
    )
