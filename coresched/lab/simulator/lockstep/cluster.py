"""The driver of a lockstep run: a conservative parallel simulation; the turnaround is its lookahead."""

import heapq
from collections.abc import Callable, Iterable
from math import inf

from coresched.core import LoadBoundedRouter
from coresched.errors import InputError
from coresched.lab.simulator.lockstep.workers import FinishedTurn, SteppedWorkers, WorkerCounts
from coresched.lab.simulator.model import StepTimes
from coresched.lab.simulator.outcome import Outcome
from coresched.lab.simulator.routers.registry import ROUTERS_BY_FIRST_TOKENS
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.twin.flow import ARRIVE, SampleFlow
from coresched.lab.simulator.twin.routing import RequestRouter, Ring
from coresched.lab.simulator.workload import Workload

Queue = list[tuple[float, int, int]]
"""A heap of (time, sequence number, sample)."""


def compiled_ring(workers: Iterable[str], load_bound: float) -> Ring:
    return LoadBoundedRouter(workers, load_bound=load_bound)


class CompiledRouter(RequestRouter):
    """With the LBCH that the client and the service route by."""

    make_ring = staticmethod(compiled_ring)


class LockstepCluster(SampleFlow):
    """Runs one batch to its end. ``run()`` may be called once.

    A turn reaches a worker at least the turnaround D after what made it possible: the end of another turn, or
    of an environment stage. So with E the earliest time at which a busy worker can finish a turn, A the next
    arrival and S the end of the next environment stage, nothing reaches any worker before
    min(A, S + D, E + D), and all workers are advanced up to there together. Then what happened till then is
    carried out in the order of time; at the same time first what finished, by worker, then the rest in the
    order in which it was planned.
    """

    router_class = CompiledRouter

    def __init__(
        self, workload: Workload, settings: RunSettings, times: StepTimes, workers: SteppedWorkers
    ) -> None:
        if settings.routing in ROUTERS_BY_FIRST_TOKENS:
            raise InputError(
                f"routing is {settings.routing!r}, which decides by first tokens; workers that are engines "
                "tell them at the end of a turn only, so take another router"
            )
        if settings.release_finished:
            raise InputError(
                "release_finished is True, but workers that are engines cannot be told that a sample has "
                "finished; leave it False"
            )
        super().__init__(workload, settings, times)
        self.workers = workers
        self.all_workers = range(settings.workers)
        self.arrivals: Queue = []
        self.stages: Queue = []
        self.turns: list[FinishedTurn] = []
        """All that finished, in that order."""
        self.counts: list[WorkerCounts] = []
        self.outcome.output_tokens = [0] * settings.workers

    def _enqueue(self, worker: int, sample: int, turn: int, t: float) -> None:
        self.workers.enqueue(worker, sample, turn, t)

    def _push(self, t: float, kind: int, subject: int, version: int = 0) -> None:
        self.sequence += 1
        heapq.heappush(self.arrivals if kind == ARRIVE else self.stages, (t, self.sequence, subject))

    def run(self, progress: Callable[[int], None] | None = None) -> Outcome:
        """``progress(completed samples)`` is called whenever the number has changed."""
        self._start()
        reported = 0
        while (until := self._horizon()) < inf:
            self._carry_out(self._advance_workers(until), until)
            if progress is not None and len(self.outcome.completed_s) > reported:
                reported = len(self.outcome.completed_s)
                progress(reported)
        self.counts = self.workers.counts()
        self.outcome.busy_s = [each.busy_s for each in self.counts]
        self.outcome.priority_s = self.outcome.evictions = self.outcome.decode_steps = None
        return self.outcome

    def _horizon(self) -> float:
        """Nothing reaches a worker before this time; inf once the batch is done."""
        finish = min(map(self.workers.next_event_s, self.all_workers))
        stage = self.stages[0][0] if self.stages else inf
        arrival = self.arrivals[0][0] if self.arrivals else inf
        return min(arrival, min(finish, stage) + self.times.turnaround_s)

    def _advance_workers(self, until: float) -> list[tuple[float, int, FinishedTurn]]:
        """(time, worker, turn) of what finishes up to ``until``, in that order."""
        due = [worker for worker in self.all_workers if self.workers.next_event_s(worker) <= until]
        finished = [
            (turn.finished_s, worker, turn)
            for worker, turns in zip(due, self.workers.advance(due, until), strict=True)
            for turn in turns
        ]
        finished.sort(key=lambda each: each[:2])
        return finished

    def _carry_out(self, finished: list[tuple[float, int, FinishedTurn]], until: float) -> None:
        for t, worker, turn in finished:
            self._carry_out_planned(t, including=False)
            self.outcome.events += 1
            self._turn_finished(worker, turn)
        self._carry_out_planned(until, including=True)

    def _carry_out_planned(self, until: float, *, including: bool) -> None:
        """Ends of environment stages, and arrivals, before ``until`` or up to it."""
        while True:
            queues = [queue for queue in (self.arrivals, self.stages) if queue]
            first = min(queues, key=lambda queue: queue[0][:2], default=None)
            if first is None or first[0][0] > until or (first[0][0] == until and not including):
                return
            t, _, sample = heapq.heappop(first)
            self.outcome.events += 1
            if first is self.arrivals:
                self._arrive(sample, t)
            else:
                self._environment_end(sample, t)

    def _turn_finished(self, worker: int, turn: FinishedTurn) -> None:
        outcome, number = self.outcome, self.turn[turn.sample]
        prompt = self.workload.prompt_tokens[number]
        outcome.input_tokens += prompt
        outcome.new_prefill_tokens += prompt - turn.cached_tokens
        outcome.output_tokens[worker] += self.workload.output_tokens[number]
        self.turns.append(turn)
        self._first_token(turn.sample, turn.first_token_s)
        self._request_finished(turn.sample, turn.finished_s)
