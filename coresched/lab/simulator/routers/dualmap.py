"""Of two workers by two hashes of the label, the one with more of the prompt, unless it would be late."""

from collections.abc import Sequence

from coresched.lab.simulator.routers.hashing import stable_hash
from coresched.lab.simulator.routers.router import Fleet, Router


class DualMap(Router):
    """DualMap, arXiv:2602.06502.

    The candidate to which more of the prompt was sent before, if the time to first token expected there, its
    pending prefill and this one's, is within the objective; else the candidate with less pending prefill.
    Simplified: hashed is the label, not the prompt's beginning; what was sent counts as cached; the objective
    is what the whole prompt would take to prefill. Left out: taking queued requests back to move them.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._candidates = [_two_workers(label, fleet.workers) for label in fleet.labels]
        self._sent: dict[tuple[int, int], int] = {}  # (sample, worker): prompt tokens of its last turn there
        self._pending = [0] * fleet.workers  # prompt tokens sent that were new, without a first token yet
        self._new: dict[int, int] = {}

    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        candidates = self._candidates[sample]
        calmer = min(candidates, key=lambda worker: (self._pending[worker], in_flight[worker]))
        worker = max(candidates, key=lambda worker: (self._cached(sample, worker), worker == calmer))
        if self._first_token_s(sample, worker, prompt_tokens) > self._fleet.prefill_s(
            prompt_tokens, prompt_tokens
        ):
            worker = calmer
        new = prompt_tokens - self._cached(sample, worker)
        self._sent[sample, worker] = prompt_tokens
        self._pending[worker] += new
        self._new[sample] = new
        return worker

    def started(self, sample: int, worker: int, now_s: float) -> None:
        self._pending[worker] -= self._new.pop(sample)

    def _cached(self, sample: int, worker: int) -> int:
        return self._sent.get((sample, worker), 0)

    def _first_token_s(self, sample: int, worker: int, prompt_tokens: int) -> float:
        new = prompt_tokens - self._cached(sample, worker)
        return self._pending[worker] * self._fleet.times.prefill_token_s + self._fleet.prefill_s(
            new, prompt_tokens
        )


def _two_workers(label: str, workers: int) -> tuple[int, ...]:
    """Different ones, where there are two."""
    first = stable_hash(f"1:{label}") % workers
    if workers == 1:
        return (first,)
    return first, (first + 1 + stable_hash(f"2:{label}") % (workers - 1)) % workers
