"""The metrics of a replay, made of its events."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coresched.core.imbalance import RequestImbalance
from coresched.lab.metrics import TAIL_PERCENTS, deviation, time_completed
from coresched.lab.replay.events import (
    Admission,
    AnyEvent,
    Completion,
    EnvironmentStage,
    FailedInference,
    Inference,
    Withdrawal,
)


@dataclass(frozen=True)
class ReplayMetrics:
    """One replay's results. Times are seconds times `speed`, fractions are 0 to 1.

    What needs the whole batch is None where it was stopped; what the engine does not report is None.
    """

    completed_samples: int
    turns: int
    elapsed_s: float
    """First admission to the last event."""
    makespan_s: float | None
    """First admission to last completion."""
    tail_s: dict[str, float] | None
    """L_p = t_100 - t_(100-p): what the last p % of the samples take, for each p of TAIL_PERCENTS."""
    input_tokens: int | None
    output_tokens: int | None
    output_tokens_per_s: float | None
    cache_reuse: float | None
    """Cached input tokens over input tokens."""
    new_prefill_tokens: int | None
    """Uncached input tokens."""
    first_turn_cached_tokens: int | None
    """Of first prompts; more than shared prefixes give were left there by an earlier run."""
    mean_in_flight: float
    """Requests from being sent to the end of their answer, averaged over the elapsed time."""
    request_imbalance: float | None
    """beta: the mean over time of d = sum|N_w - N/W| / (2N(1 - 1/W)) while N > 1; None with one worker."""
    output_imbalance: float | None
    """gamma: the same deviation of the tokens generated on each worker; None with one worker."""
    ttft_s: float | None
    """Mean time to the first token, of the requests for which the engine says it."""
    tpot_s: float | None
    """Mean time of an output token after the first, of the same requests."""
    inference_s: float
    """Sum over completed turns, from being sent to the end of the answer."""
    environment_s: float
    environment_queue_s: float
    """Sums over completed environment stages: pauses, and waits for a slot."""
    environment_late_s: float
    median_environment_late_s: float
    p99_environment_late_s: float
    worst_environment_late_s: float
    """By how much pauses were longer than recorded: mean, that of half of them, of 99 %, and largest."""
    migrations: int
    """Turns served by another worker than the trajectory's previous turn."""
    failed_requests: int
    turns_by_worker: dict[str, int]


def measure(events: Sequence[AnyEvent], *, samples: int, endpoints: Sequence[str]) -> ReplayMetrics:
    """Metrics of a batch of ``samples`` on these endpoints. A replay may have been stopped at any event."""
    turns = [event for event in events if isinstance(event, Inference)]
    failures = [event for event in events if isinstance(event, FailedInference)]
    stages = [event for event in events if isinstance(event, EnvironmentStage)]
    admitted = [event.at_s for event in events if isinstance(event, Admission)]
    completed = sorted(event.at_s for event in events if isinstance(event, Completion))
    began = min(admitted, default=0.0)
    last = max((ended(event) for event in events), default=began)
    complete = len(completed) == samples
    elapsed = last - began
    workers = list(endpoints)
    if not {turn.worker for turn in turns} <= set(workers):  # a gateway told its workers
        workers = sorted({turn.worker for turn in turns})
    output = Counter(dict.fromkeys(workers, 0))
    for turn in turns:
        output[turn.worker] += turn.output_tokens or 0
    input_tokens = _sum_known(turn.prompt_tokens for turn in turns)
    output_tokens = _sum_known(turn.output_tokens for turn in turns)
    cached = _sum_known(turn.cached_tokens for turn in turns)
    requests = [(turn.sent_s, turn.ended_s, turn.worker) for turn in turns]
    requests += [(failure.sent_s, failure.ended_s, failure.worker) for failure in failures]
    timed = [(turn, turn.first_token_s) for turn in turns if turn.first_token_s is not None]
    decoded = _sum_known(turn.output_tokens and turn.output_tokens - 1 for turn, _ in timed)
    late = sorted(
        stage.ended_s - stage.started_s - stage.duration_s for stage in stages if stage.duration_s is not None
    )
    return ReplayMetrics(
        completed_samples=len(completed),
        turns=len(turns),
        elapsed_s=elapsed,
        makespan_s=completed[-1] - began if complete else None,
        tail_s={str(p): completed[-1] - time_completed(completed, 100 - p) for p in TAIL_PERCENTS}
        if complete
        else None,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        output_tokens_per_s=_rate(output_tokens, elapsed),
        cache_reuse=None if cached is None or not input_tokens else cached / input_tokens,
        new_prefill_tokens=None if cached is None or input_tokens is None else input_tokens - cached,
        first_turn_cached_tokens=_sum_known(turn.cached_tokens for turn in turns if turn.turn == 0),
        mean_in_flight=sum(end - start for start, end, _ in requests) / elapsed if elapsed else 0.0,
        request_imbalance=_request_imbalance(requests, workers) if len(workers) > 1 else None,
        output_imbalance=deviation(list(output.values())) if len(workers) > 1 and output_tokens else None,
        ttft_s=sum(first for _, first in timed) / len(timed) if timed else None,
        tpot_s=sum(turn.ended_s - turn.sent_s - first for turn, first in timed) / decoded
        if decoded
        else None,
        inference_s=sum(turn.ended_s - turn.sent_s for turn in turns),
        environment_s=sum(stage.ended_s - stage.started_s for stage in stages),
        environment_queue_s=sum(stage.started_s - stage.requested_s for stage in stages),
        environment_late_s=sum(late) / len(late) if late else 0.0,
        median_environment_late_s=_quantile(late, 50),
        p99_environment_late_s=_quantile(late, 99),
        worst_environment_late_s=max(late, default=0.0),
        migrations=_migrations(turns),
        failed_requests=len(failures),
        turns_by_worker={worker: sum(turn.worker == worker for turn in turns) for worker in workers},
    )


def ended(event: AnyEvent) -> float:
    """When it was over, in seconds since the batch began."""
    return event.at_s if isinstance(event, Admission | Completion | Withdrawal) else event.ended_s


def _rate(tokens: int | None, elapsed_s: float) -> float | None:
    if tokens is None:
        return None
    return tokens / elapsed_s if elapsed_s else 0.0


def _quantile(ascending: Sequence[float], percent: int) -> float:
    """The smallest value that ``percent`` of them do not exceed; 0 without values."""
    return ascending[-(-len(ascending) * percent // 100) - 1] if ascending else 0.0


def _sum_known(numbers: Iterable[int | None]) -> int | None:
    """The sum, or None if one of them is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _request_imbalance(requests: Sequence[tuple[float, float, str]], workers: Sequence[str]) -> float:
    loads = dict.fromkeys(workers, 0)
    changes = [(start, 1, worker) for start, _, worker in requests]
    changes += [(end, -1, worker) for _, end, worker in requests]
    changes.sort(key=lambda change: (change[0], -change[1]))
    imbalance = RequestImbalance(list(loads.values()), changes[0][0] if changes else 0.0)
    for at, change, worker in changes:
        if worker not in loads:  # a failed request, counted at the gateway itself
            continue
        (imbalance.began if change > 0 else imbalance.ended)(loads[worker], at)
        loads[worker] += change
    over, busy = imbalance.integrals(changes[-1][0] if changes else 0.0)
    return over / busy if busy else 0.0


def _migrations(turns: Sequence[Inference]) -> int:
    last: dict[str, str] = {}
    count = 0
    for turn in turns:
        count += last.get(turn.sample, turn.worker) != turn.worker
        last[turn.sample] = turn.worker
    return count
