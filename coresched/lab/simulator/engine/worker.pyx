# cython: boundscheck=False, wraparound=False, cdivision=True
"""One simulated worker: its batch builder and its decode runs."""

from libc.math cimport ceil, sqrt
from libcpp.algorithm cimport pop_heap, push_heap
from libcpp.pair cimport pair

from coresched.lab.simulator.engine.columns cimport Columns
from coresched.lab.simulator.engine.pools cimport CachePools
from coresched.lab.simulator.engine.waiting cimport WaitingQueue

from coresched.core.guard import STEPS_UNTIL_REPEATED
from coresched.lab.simulator.evictions.registry import make_eviction

cdef enum:
    IDLE, PREFILL, DECODE
cdef long long steps_until_repeated = STEPS_UNTIL_REPEATED
cdef int NONE = -1


cdef class WorkerHost:
    """What a worker reports to: wakes it asks for, first tokens and ends of its requests."""

    cdef int wake_at(self, int worker, double t, long long version) except -1:
        raise NotImplementedError

    cdef int started(self, int sample, double t) except -1:
        raise NotImplementedError

    cdef int finished(self, int sample, double t) except -1:
        raise NotImplementedError


cdef Times step_times(object times):
    cdef Times t
    t.decode_step = times.decode_step_s
    t.decode_sequence = times.decode_sequence_s
    t.decode_sequence_beyond_knee = times.decode_sequence_beyond_knee_s
    t.decode_context_token = times.decode_context_token_s
    t.decode_knee = times.decode_knee_sequences
    t.prefill_batch = times.prefill_batch_s
    t.prefill_request = times.prefill_request_s
    t.prefill_token = times.prefill_token_s
    t.prefill_attended_token = times.prefill_attended_token_s
    return t


cdef class SimulatedWorker:
    """Batches continuously: prefill first, in chunks; decode runs in closed form up to the next change.

    A wake of an older version than the worker's is void.
    """

    def __init__(self, int index, Columns columns, settings, model, memory, WorkerHost host):
        self.index = index
        self.columns = columns
        self.host = host
        self.times = step_times(model.times)
        self.chunk_tokens = model.prefill_chunk_tokens
        self.max_running = memory.max_running
        self.overlap = model.overlap_schedule
        self.pools = CachePools(columns, memory, make_eviction(settings, columns.workload, model))
        self.waiting = WaitingQueue(columns, self.pools, settings, model.times)
        self.partial = NONE
        self.operation = IDLE

    @property
    def evictions(self):
        return self.pools.evictions

    @property
    def decode_steps(self):
        return self.steps

    # --- requests in

    cdef int enqueue(self, int sample, long long turn, double t) except -1:
        self.pools.now_s = t
        self.pools.queued(sample)
        self.input_tokens += self.columns.prompt[turn]
        self.waiting.arrived(sample, turn, t)
        if self.operation == IDLE:
            return self.next_step(t)
        if self.operation == DECODE and not self.full and <long long>self.running.size() < self.max_running:
            return self.cut_run(t)
        return 0

    cdef int cut_run(self, double t) except -1:
        """End the decode run at the first step boundary after t, so that the arrival is considered there."""
        cdef double elapsed = t - self.operation_start
        cdef double base, exact
        cdef long long steps
        if elapsed < 0:
            elapsed = 0
        # The root of k b + k^2 g / 2 = elapsed in the form that subtracts nothing, so that any g will do.
        base = self.step_s - self.step_growth_s * 0.5
        exact = 2 * elapsed / (base + sqrt(base * base + 2 * self.step_growth_s * elapsed))
        steps = <long long>ceil(exact - 1e-9)
        if steps < 1:
            steps = 1
        if steps < self.run_steps:
            self.run_steps = steps
            self.wake_after_run()
        return 0

    cdef int release(self, int sample) except -1:
        """The sample has finished, so drop what is held of it."""
        if self.pools.idle[sample]:
            self.pools.drop(sample)
        return self.waiting.release(sample)

    # --- engine steps

    cdef int wake(self, double t) except -1:
        self.pools.now_s = t
        self.freed = 0
        if self.operation == PREFILL:
            self.end_prefill(t)
        elif self.operation == DECODE:
            self.end_run(t)
        self.operation = IDLE
        return self.next_step(t)

    cdef int end_prefill(self, double t) except -1:
        cdef size_t place
        cdef int sample
        cdef long long turn, prompt, output
        cdef pair[long long, int] end
        self.prefills += 1
        self.waiting.tick(self.steps + self.prefills)
        for place in range(self.batch.size()):
            sample = self.batch[place]
            turn = self.waiting.turn_of[sample]
            self.host.started(sample, t)
            output = self.columns.output[turn]
            if output == 1:
                self.finish(sample, t)
            else:
                prompt = self.columns.prompt[turn]
                # Negated, so that the standard max-heap has the earliest end, then the lowest sample, on top.
                end.first = -(self.steps + output - 1)
                end.second = -sample
                self.running.push_back(end)
                push_heap(self.running.begin(), self.running.end())
                self.context_tokens += prompt + 1
                self.pools.grow(sample, prompt + 1)
        self.pools.make_room()
        self.batch.clear()
        return 0

    cdef int end_run(self, double t) except -1:
        cdef size_t place
        cdef int sample
        cdef long long turn, final, ended = 0
        self.busy_s += t - self.operation_start
        self.steps += self.run_steps
        self.waiting.tick(self.steps + self.prefills)
        self.context_tokens += <long long>self.running.size() * self.run_steps
        if self.pools.page_tokens == 1:
            # Every token is a page: count them together and bring an entry's own count up to date when it ends.
            self.pools.used_pages += <long long>self.running.size() * self.run_steps
        else:
            for place in range(self.running.size()):
                sample = -self.running[place].second
                self.pools.grow(sample, self.pools.tokens[sample] + self.run_steps)
        self.pools.make_room()
        while self.running.size() > 0 and -self.running[0].first <= self.steps:
            sample = -self.running[0].second
            pop_heap(self.running.begin(), self.running.end())
            self.running.pop_back()
            turn = self.waiting.turn_of[sample]
            final = self.columns.prompt[turn] + self.columns.output[turn]
            self.context_tokens -= final
            self.pools.tokens[sample] = final
            ended += 1
            self.finish(sample, t)
        # With overlapped scheduling the next step is already launched when these ends are seen, so their places
        # are offered one step later; there is no such step when nothing runs any more.
        if self.overlap and self.running.size() > 0:
            self.freed = ended
        return 0

    cdef int finish(self, int sample, double t) except -1:
        cdef long long turn = self.waiting.turn_of[sample]
        cdef long long output = self.columns.output[turn]
        self.generated_tokens += output
        self.pools.finish(sample, self.columns.prompt[turn] + output, self.columns.cached[turn])
        self.pools.rested(sample, turn)
        self.full = False
        self.waiting.ended(sample, t)
        return self.host.finished(sample, t)

    cdef int next_step(self, double t) except -1:
        cdef double duration
        self.build_batch(t)
        if self.new_tokens > 0:
            duration = (
                self.times.prefill_batch
                + self.times.prefill_token * self.new_tokens
                + self.times.prefill_attended_token * self.attended
                + self.cost
            )
            self.operation = PREFILL
            self.operation_start = t
            self.busy_s += duration
            self.version += 1
            return self.host.wake_at(self.index, t + duration, self.version)
        if self.running.size() > 0:
            return self.begin_run(t + self.cost)
        return 0

    cdef int begin_run(self, double t) except -1:
        cdef long long running = self.running.size()
        cdef long long knee = self.times.decode_knee
        self.operation = DECODE
        self.operation_start = t
        self.step_s = (
            self.times.decode_step
            + self.times.decode_sequence * (running if running < knee else knee)
            + self.times.decode_sequence_beyond_knee * (running - knee if running > knee else 0)
            + self.times.decode_context_token * self.context_tokens
        )
        self.step_growth_s = self.times.decode_context_token * running
        if self.freed > 0 and len(self.waiting.requests) > 0:
            self.run_steps = 1
        else:
            self.run_steps = -self.running[0].first - self.steps
        if self.held_back and self.run_steps > steps_until_repeated:
            self.run_steps = steps_until_repeated
        return self.wake_after_run()

    cdef int wake_after_run(self) except -1:
        cdef long long k = self.run_steps
        self.version += 1
        return self.host.wake_at(
            self.index, self.operation_start + k * self.step_s + self.step_growth_s * k * (k - 1) * 0.5, self.version
        )

    # --- the batch builder

    cdef int build_batch(self, double t) except -1:
        """Fill the next prefill batch; leaves its cost, new tokens, and sum of new x context tokens in fields."""
        cdef Py_ssize_t admitted = 0, count = len(self.waiting.requests)
        cdef long long places = self.max_running - self.freed - <long long>self.running.size()
        cdef long long turn, prompt, final, hit
        cdef int sample
        self.cost = 0.0
        self.new_tokens = 0
        self.attended = 0.0
        self.held_back = False
        if self.partial == NONE and (count == 0 or self.full or places <= 0):
            return 0
        self.budget = self.chunk_tokens
        if count > 0:
            self.cost = self.waiting.order(t)
            self.priority_s += self.cost
        if self.partial != NONE:
            sample = self.partial
            self.partial = NONE
            self.prefill(sample, self.partial_computed)
            self.pools.make_room()
        while self.budget > 0 and self.partial == NONE and admitted < count:
            sample = self.waiting.at(admitted)
            turn = self.waiting.turn_of[sample]
            prompt = self.columns.prompt[turn]
            final = prompt + self.columns.output[turn]
            if <long long>self.batch.size() >= places or not self.pools.fits(sample, final):
                self.full = self.running.size() > 0 or self.batch.size() > 0
                break
            if (self.running.size() > 0 or self.batch.size() > 0) and self.waiting.holds_back(sample, final):
                self.held_back = True  # the engine is not full: who is cached may still start
                break
            hit = self.pools.hit(sample, prompt)
            self.pools.start(sample, final)
            self.new_prefill_tokens += prompt - hit
            admitted += 1
            self.prefill(sample, hit)
            self.cost += self.times.prefill_request
            self.pools.make_room()
        return self.waiting.admitted(admitted, self.new_tokens, t)

    cdef void prefill(self, int sample, long long computed):
        """Compute as much of the prompt as the budget allows; what is left stays partial for the next batch."""
        cdef long long prompt = self.columns.prompt[self.waiting.turn_of[sample]]
        cdef long long take = prompt - computed
        if take > self.budget:
            take = self.budget
        self.pools.grow(sample, computed + take)
        self.new_tokens += take
        self.attended += take * (computed + take * 0.5)
        self.budget -= take
        if computed + take == prompt:
            self.batch.push_back(sample)
        else:
            self.partial = sample
            self.partial_computed = computed + take
