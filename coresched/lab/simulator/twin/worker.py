"""One simulated worker: its batch builder and its decode runs."""

import heapq
import math
from collections.abc import Callable

from coresched.core.guard import STEPS_UNTIL_REPEATED
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.twin.pools import CachePools
from coresched.lab.simulator.twin.waiting import WaitingQueue, WorkerSettings
from coresched.lab.simulator.workload import RequestColumns

IDLE, PREFILL, DECODE = range(3)


class SimulatedWorker:
    """Batches continuously: prefill first, in chunks; decode runs in closed form up to the next change.

    ``wake_at(time, version)`` asks to be woken; a wake of an older version is void. ``started(sample, time)``
    and ``finished(sample, time)`` report a request's first token and its end.
    """

    waiting_class = WaitingQueue

    def __init__(
        self,
        workload: RequestColumns,
        settings: WorkerSettings,
        model: WorkerModel,
        pools: CachePools,
        wake_at: Callable[[float, int], None],
        started: Callable[[int, float], None],
        finished: Callable[[int, float], None],
    ) -> None:
        self.workload = workload
        self.model = model
        self.times = model.times
        self.memory = pools.memory
        self.wake_at, self.started, self.finished = wake_at, started, finished
        self.pools = pools
        self.waiting = self.waiting_class(workload, pools, settings, model.times)
        self.running: list[tuple[int, int]] = []
        self.batch: list[int] = []
        self.partial: tuple[int, int] | None = None
        self.freed = 0
        self.full = self.held_back = False
        self.steps = self.prefills = 0
        self.context_tokens = 0
        self.operation = IDLE
        self.operation_start = 0.0
        self.run_steps = 0
        self.step_s = 0.0
        self.step_growth_s = 0.0
        self.version = 0
        self.input_tokens = self.new_prefill_tokens = self.generated_tokens = 0
        self.busy_s = self.priority_s = 0.0

    # --- requests in

    def enqueue(self, sample: int, turn: int, t: float) -> None:
        self.pools.now_s = t
        self.pools.queued(sample)
        self.input_tokens += self.workload.prompt_tokens[turn]
        self.waiting.arrived(sample, turn, t)
        if self.operation == IDLE:
            self._next_step(t)
        elif self.operation == DECODE and not self.full and len(self.running) < self.memory.max_running:
            self._cut_run(t)

    def _cut_run(self, t: float) -> None:
        """End the decode run at the first step boundary after t, so that the arrival is considered there."""
        steps = max(1, math.ceil(self._steps_passed(t) - 1e-9))
        if steps < self.run_steps:
            self.run_steps = steps
            self._wake_after_run()

    def _steps_passed(self, t: float) -> float:
        """Steps of the present decode run until t, with the part of the step under way."""
        elapsed = max(0.0, t - self.operation_start)
        # The root of k b + k^2 g / 2 = elapsed in the form that subtracts nothing, so that any g will do.
        base = self.step_s - self.step_growth_s * 0.5
        return 2 * elapsed / (base + math.sqrt(base * base + 2 * self.step_growth_s * elapsed))

    def _run_time(self, k: int) -> float:
        """When the first ``k`` steps of the present decode run end."""
        return self.operation_start + k * self.step_s + self.step_growth_s * k * (k - 1) * 0.5

    def release(self, sample: int) -> None:
        """The sample has finished, so drop what is held of it."""
        self.pools.release(sample)
        self.waiting.release(sample)

    # --- engine steps

    def wake(self, t: float) -> None:
        self.pools.now_s = t
        self.freed = 0
        if self.operation == PREFILL:
            self._end_prefill(t)
        elif self.operation == DECODE:
            self._end_run(t)
        self.operation = IDLE
        self._next_step(t)

    def _end_prefill(self, t: float) -> None:
        self.prefills += 1
        self.waiting.tick(self.steps + self.prefills)
        for sample in self.batch:
            turn = self.waiting.turn_of[sample]
            self.started(sample, t)
            output = self.workload.output_tokens[turn]
            if output == 1:
                self._finish(sample, t)
            else:
                prompt = self.workload.prompt_tokens[turn]
                heapq.heappush(self.running, (self.steps + output - 1, sample))
                self.context_tokens += prompt + 1
                self.pools.grow(sample, prompt + 1)
        self.pools.make_room()
        self.batch = []

    def _end_run(self, t: float) -> None:
        self.busy_s += t - self.operation_start
        self.steps += self.run_steps
        self.waiting.tick(self.steps + self.prefills)
        self.context_tokens += len(self.running) * self.run_steps
        for _, sample in self.running:
            self.pools.grow(sample, self.pools.tokens[sample] + self.run_steps)
        self.pools.make_room()
        ended = 0
        while self.running and self.running[0][0] <= self.steps:
            _, sample = heapq.heappop(self.running)
            turn = self.waiting.turn_of[sample]
            self.context_tokens -= self.workload.prompt_tokens[turn] + self.workload.output_tokens[turn]
            ended += 1
            self._finish(sample, t)
        # With overlapped scheduling the next step is already launched when these ends are seen, so their
        # places are offered one step later; there is no such step when nothing runs any more.
        if self.model.overlap_schedule and self.running:
            self.freed = ended

    def _finish(self, sample: int, t: float) -> None:
        turn = self.waiting.turn_of[sample]
        output = self.workload.output_tokens[turn]
        final = self.workload.prompt_tokens[turn] + output
        self.generated_tokens += output
        self.pools.finish(sample, final, self.workload.cached_tokens[turn])
        self.pools.rested(sample, turn)
        self.full = False
        self.waiting.ended(sample, t)
        self.finished(sample, t)

    def _next_step(self, t: float) -> None:
        cost, new_tokens, attended = self._build_batch(t)
        if new_tokens:
            times = self.times
            duration = (
                times.prefill_batch_s
                + times.prefill_token_s * new_tokens
                + times.prefill_attended_token_s * attended
                + cost
            )
            self.operation = PREFILL
            self.operation_start = t
            self.busy_s += duration
            self.version += 1
            self.wake_at(t + duration, self.version)
        elif self.running:
            self._begin_run(t + cost)

    def _begin_run(self, t: float) -> None:
        times, running = self.times, len(self.running)
        knee = times.decode_knee_sequences
        self.operation = DECODE
        self.operation_start = t
        self.step_s = (
            times.decode_step_s
            + times.decode_sequence_s * min(running, knee)
            + times.decode_sequence_beyond_knee_s * max(0, running - knee)
            + times.decode_context_token_s * self.context_tokens
        )
        self.step_growth_s = times.decode_context_token_s * running
        self.run_steps = 1 if self.freed and self.waiting.requests else self.running[0][0] - self.steps
        if self.held_back:
            self.run_steps = min(self.run_steps, STEPS_UNTIL_REPEATED)
        self._wake_after_run()

    def _wake_after_run(self) -> None:
        self.version += 1
        self.wake_at(self._run_time(self.run_steps), self.version)

    # --- the batch builder

    def _build_batch(self, t: float) -> tuple[float, int, float]:
        """Fill the next prefill batch.

        Returns its scheduling cost, new tokens, and sum of new x context tokens.
        """
        cost, new_tokens, attended = 0.0, 0, 0.0
        budget = self.model.prefill_chunk_tokens
        places = self.memory.max_running - self.freed - len(self.running)
        self.held_back = False
        may_admit = bool(self.waiting.requests) and not self.full and places > (self.partial is not None)
        if not may_admit and self.partial is None:
            return cost, new_tokens, attended
        if self.waiting.requests:
            cost = self.waiting.order(t)
            self.priority_s += cost
        if self.partial is not None:
            sample, computed = self.partial
            self.partial = None
            take, part = self._prefill(sample, computed, budget)
            new_tokens, attended, budget = new_tokens + take, attended + part, budget - take
            self.pools.make_room()
        admitted = 0
        while budget > 0 and self.partial is None and admitted < len(self.waiting.requests):
            sample = self.waiting.at(admitted)
            turn = self.waiting.turn_of[sample]
            prompt = self.workload.prompt_tokens[turn]
            final = prompt + self.workload.output_tokens[turn]
            if len(self.batch) >= places or not self.pools.fits(sample, final):
                self.full = bool(self.running or self.batch)
                break
            if (self.running or self.batch) and self.waiting.holds_back(sample, final):
                self.held_back = True  # the engine is not full: who is cached may still start
                break
            hit = self.pools.hit(sample, prompt)
            self.pools.start(sample, final)
            self.waiting.started(sample)
            self.new_prefill_tokens += prompt - hit
            admitted += 1
            take, part = self._prefill(sample, hit, budget)
            new_tokens, attended, budget = new_tokens + take, attended + part, budget - take
            cost += self.times.prefill_request_s
            self.pools.make_room()
        self.waiting.admitted(admitted, new_tokens, t)
        return cost, new_tokens, attended

    def _prefill(self, sample: int, computed: int, budget: int) -> tuple[int, float]:
        """Compute up to ``budget`` more prompt tokens; what is left stays partial for the next batch."""
        prompt = self.workload.prompt_tokens[self.waiting.turn_of[sample]]
        take = min(budget, prompt - computed)
        self.pools.grow(sample, computed + take)
        if computed + take == prompt:
            self.batch.append(sample)
        else:
            self.partial = (sample, computed + take)
        return take, take * (computed + take * 0.5)
