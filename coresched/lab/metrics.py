"""The metrics of a run, made of what it counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the simulator imports this module
    from coresched.lab.simulator.outcome import Outcome

TAIL_PERCENTS = (5, 10)


@dataclass(frozen=True)
class Metrics:
    """One run's results. Times are seconds, fractions are 0 to 1."""

    makespan_s: float
    """First admission to last completion."""
    tail_s: dict[str, float]
    """L_p = t_100 - t_(100-p): what the last p % of the samples take, for each p of TAIL_PERCENTS."""
    cache_reuse: float
    """Cached input tokens over input tokens."""
    new_prefill_tokens: int
    """Uncached input tokens."""
    input_tokens: int
    output_tokens: int
    output_tokens_per_s: float
    mean_in_flight: float
    """Requests between arrival at the router and their end, averaged over the makespan."""
    request_imbalance: float | None
    """beta: the mean over time of d = sum|N_w - N/W| / (2N(1 - 1/W)) while N > 1; None with one worker."""
    output_imbalance: float | None
    """gamma: the same deviation of the tokens generated on each worker; None with one worker."""
    ttft_s: float
    """Mean time from arrival to the first output token."""
    tpot_s: float | None
    """Mean time of an output token after the first; None when no request has a second one."""
    priority_calculation_s: float | None
    """Time the workers spent ordering their waiting queues; None where that takes no virtual time."""
    worker_busy: list[float]
    """Share of the makespan each worker computed."""
    evictions: int | None
    """Cache entries evicted; None where the workers do not say it."""
    migrations: int
    """Turns served by another worker than the trajectory's previous turn."""
    environment_s: float
    """Summed duration of all environment stages."""
    events: int
    """Simulator events processed."""


def measure(outcome: Outcome) -> Metrics:
    """Make metrics of a finished run."""
    completed = outcome.completed_s
    makespan = completed[-1]
    output_tokens = sum(outcome.output_tokens)
    decoded = output_tokens - outcome.requests
    return Metrics(
        makespan_s=makespan,
        tail_s={str(p): makespan - time_completed(completed, 100 - p) for p in TAIL_PERCENTS},
        cache_reuse=1 - outcome.new_prefill_tokens / outcome.input_tokens,
        new_prefill_tokens=outcome.new_prefill_tokens,
        input_tokens=outcome.input_tokens,
        output_tokens=output_tokens,
        output_tokens_per_s=output_tokens / makespan,
        mean_in_flight=outcome.in_flight_s / makespan,
        request_imbalance=_share(outcome.imbalance_s, outcome.shared_load_s) if outcome.workers > 1 else None,
        output_imbalance=deviation(outcome.output_tokens) if outcome.workers > 1 else None,
        ttft_s=outcome.ttft_s / outcome.requests,
        tpot_s=outcome.decode_s / decoded if decoded else None,
        priority_calculation_s=outcome.priority_s,
        worker_busy=[busy / makespan for busy in outcome.busy_s],
        evictions=outcome.evictions,
        migrations=outcome.migrations,
        environment_s=outcome.environment_s,
        events=outcome.events,
    )


def time_completed(completed_s: list[float], percent: int) -> float:
    """t_q: when the completed fraction first reaches ``percent`` %; ``completed_s`` ascending."""
    needed = -(-percent * len(completed_s) // 100)
    return completed_s[needed - 1] if needed else 0.0


def percentile(values: Sequence[float], percent: int) -> float:
    """Nearest rank: the least value that at least ``percent`` % of the values do not exceed."""
    return sorted(values)[max(0, -(-percent * len(values) // 100) - 1)]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def deviation(amounts: Sequence[int]) -> float:
    """sum|a - mean| / (2 sum (1 - 1/count)), of at least two amounts that are not all 0."""
    total, count = sum(amounts), len(amounts)
    mean = total / count
    return sum(abs(amount - mean) for amount in amounts) / (2 * total * (1 - 1 / count))
