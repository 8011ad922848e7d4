# cython: boundscheck=False, wraparound=False, cdivision=True
"""The event loop: a batch on W simulated workers, in virtual time."""

from array import array

from libc.math cimport NAN, fabs
from libcpp.vector cimport vector

from coresched.batch.coordinator cimport Coordinator, Sample
from coresched.lab.simulator.engine.columns cimport Columns
from coresched.lab.simulator.engine.heap cimport Event, EventHeap
from coresched.lab.simulator.engine.routing cimport RequestRouter
from coresched.lab.simulator.engine.worker cimport SimulatedWorker, WorkerHost

from coresched.lab.simulator.expectations import expected_lengths
from coresched.lab.simulator.outcome import Outcome

cdef enum:
    WAKE, ARRIVE, ENVIRONMENT_END


cdef class Cluster(WorkerHost):
    """Runs one batch: `advance` until it is done, then read `outcome`."""

    cdef Columns columns
    cdef Coordinator coordinator
    cdef RequestRouter router
    cdef EventHeap heap
    cdef list workers
    cdef list sample_records
    cdef int worker_count
    cdef bint release_finished
    cdef double turnaround_s, turnaround_token_s
    cdef vector[long long] turn
    cdef vector[int] worker_of
    cdef vector[double] arrived_s, first_token_s, completed_s, load_t
    cdef vector[int] load_worker, load_change
    cdef double measured_s
    cdef double ttft_s, decode_s, environment_s, in_flight_s, imbalance_s, shared_load_s
    cdef long long events, requests, migrations

    def __init__(self, workload, settings, model, memory):
        cdef int sample
        cdef Sample record
        self.columns = Columns(workload)
        self.coordinator = Coordinator(
            settings.sample_concurrency,
            settings.environment_concurrency,
            environment_policy=settings.environment_policy,
            admission_policy=settings.admission_policy,
            band_s=settings.band_s,
            bucket_s=settings.bucket_s,
        )
        self.router = RequestRouter(self.columns, settings, model.times)
        self.heap = EventHeap()
        self.worker_count = settings.workers
        self.release_finished = settings.release_finished
        self.turnaround_s = model.times.turnaround_s
        self.turnaround_token_s = model.times.turnaround_token_s
        self.workers = [
            SimulatedWorker(index, self.columns, settings, model, memory, self) for index in range(settings.workers)
        ]
        for sample in range(self.columns.samples):
            self.turn.push_back(self.columns.first_turn[sample])
        self.worker_of.assign(self.columns.samples, -1)
        self.arrived_s.assign(self.columns.samples, 0.0)
        self.first_token_s.assign(self.columns.samples, 0.0)
        self.sample_records = []
        expected = expected_lengths(workload, settings, model.times)
        for sample in range(self.columns.samples):
            length = expected[sample]
            record = self.coordinator.enroll(self.columns.labels[sample], 0.0, NAN if length is None else length)
            record.index = sample
            self.sample_records.append(record)
        self.admit(0.0)

    @property
    def completed(self):
        """Samples finished so far."""
        return self.completed_s.size()

    def advance(self, long long max_events):
        """Process up to ``max_events`` events. Returns False once the batch is done."""
        cdef Event event
        cdef SimulatedWorker worker
        cdef long long stop = self.events + max_events
        while self.heap.events.size() > 0:
            if self.events >= stop:
                return True
            event = self.heap.pop()
            if event.kind == WAKE:
                worker = <SimulatedWorker>self.workers[event.subject]
                if worker.version != event.version:
                    continue
                self.events += 1
                worker.wake(event.t)
            elif event.kind == ARRIVE:
                self.events += 1
                self.arrive(event.subject, event.t)
            else:
                self.events += 1
                self.environment_end(event.subject, event.t)
        return False

    def outcome(self):
        """The Outcome of a batch that is done."""
        cdef SimulatedWorker worker
        result = Outcome(
            workers=self.worker_count,
            events=self.events,
            requests=self.requests,
            migrations=self.migrations,
            ttft_s=self.ttft_s,
            decode_s=self.decode_s,
            environment_s=self.environment_s,
            in_flight_s=self.in_flight_s,
            imbalance_s=self.imbalance_s,
            shared_load_s=self.shared_load_s,
            completed_s=list(self.completed_s),
            load_t=array("d", self.load_t),
            load_worker=array("i", self.load_worker),
            load_change=array("i", self.load_change),
        )
        for worker in self.workers:
            result.input_tokens += worker.input_tokens
            result.new_prefill_tokens += worker.new_prefill_tokens
            result.output_tokens.append(worker.generated_tokens)
            result.busy_s.append(worker.busy_s)
            result.priority_s += worker.priority_s
            result.evictions += worker.evictions
            result.decode_steps += worker.decode_steps
        return result

    # --- a sample's life

    cdef int admit(self, double t) except -1:
        cdef Sample record = self.coordinator.next_admission(t)
        while record is not None:
            self.send(record.index, t)
            record = self.coordinator.next_admission(t)
        return 0

    cdef int send(self, int sample, double t) except -1:
        cdef long long prompt = self.columns.prompt[self.turn[sample]]
        self.heap.push(t + self.turnaround_s + self.turnaround_token_s * prompt, ARRIVE, sample, 0)
        return 0

    cdef int arrive(self, int sample, double t) except -1:
        cdef long long turn = self.turn[sample]
        cdef int worker
        self.coordinator.begin_inference(<Sample>self.sample_records[sample], t)
        self.measure(t)
        worker = self.router.route(sample, self.columns.prompt[turn], t)
        if self.worker_of[sample] >= 0 and self.worker_of[sample] != worker:
            self.migrations += 1
        self.worker_of[sample] = worker
        self.arrived_s[sample] = t
        self.log_load(t, worker, 1)
        return (<SimulatedWorker>self.workers[worker]).enqueue(sample, turn, t)

    cdef int wake_at(self, int worker, double t, long long version) except -1:
        self.heap.push(t, WAKE, worker, version)
        return 0

    cdef int started(self, int sample, double t) except -1:
        self.first_token_s[sample] = t
        self.router.started(sample, self.worker_of[sample], t)
        self.requests += 1
        self.ttft_s += t - self.arrived_s[sample]
        return 0

    cdef int finished(self, int sample, double t) except -1:
        cdef long long turn = self.turn[sample]
        cdef int worker = self.worker_of[sample]
        cdef Sample record = <Sample>self.sample_records[sample]
        self.measure(t)
        self.router.release(sample, worker, t)
        self.log_load(t, worker, -1)
        self.decode_s += t - self.first_token_s[sample]
        self.coordinator.end_inference(record, t)
        if self.columns.environment_s[turn] >= 0:
            self.coordinator.queue_environment(record, t)
            return self.dispatch(t)
        return self.next_turn(sample, t)

    cdef int dispatch(self, double t) except -1:
        cdef Sample record = self.coordinator.next_dispatch(t)
        cdef double duration
        while record is not None:
            duration = self.columns.environment_s[self.turn[record.index]]
            self.environment_s += duration
            self.heap.push(t + duration, ENVIRONMENT_END, record.index, 0)
            record = self.coordinator.next_dispatch(t)
        return 0

    cdef int environment_end(self, int sample, double t) except -1:
        self.coordinator.end_environment(<Sample>self.sample_records[sample], t)
        self.next_turn(sample, t)
        return self.dispatch(t)

    cdef int next_turn(self, int sample, double t) except -1:
        self.turn[sample] += 1
        if self.turn[sample] < self.columns.first_turn[sample + 1]:
            return self.send(sample, t)
        self.router.finished(sample)
        if self.release_finished:
            for worker in self.workers:
                (<SimulatedWorker>worker).release(sample)
        self.coordinator.complete(<Sample>self.sample_records[sample], t)
        self.completed_s.push_back(t)
        return self.admit(t)

    cdef int log_load(self, double t, int worker, int change) except -1:
        self.load_t.push_back(t)
        self.load_worker.push_back(worker)
        self.load_change.push_back(change)
        return 0

    cdef int measure(self, double t) except -1:
        """Integrate in-flight and its imbalance over the workers up to t."""
        cdef double elapsed = t - self.measured_s
        cdef long long total = 0
        cdef double mean, deviation = 0.0
        cdef int worker, workers = self.worker_count
        self.measured_s = t
        for worker in range(workers):
            total += self.router.in_flight[worker]
        self.in_flight_s += total * elapsed
        if workers > 1 and total > 1:
            mean = <double>total / workers
            for worker in range(workers):
                deviation += fabs(self.router.in_flight[worker] - mean)
            self.imbalance_s += elapsed * (deviation / (2 * total * (1 - 1.0 / workers)))
            self.shared_load_s += elapsed
        return 0
