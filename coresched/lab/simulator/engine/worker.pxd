from libcpp.pair cimport pair
from libcpp.vector cimport vector

from coresched.lab.simulator.engine.columns cimport Columns
from coresched.lab.simulator.engine.pools cimport CachePools
from coresched.lab.simulator.engine.waiting cimport WaitingQueue

cdef struct Times:
    double decode_step, decode_sequence, decode_sequence_beyond_knee, decode_context_token
    long long decode_knee
    double prefill_batch, prefill_request, prefill_token, prefill_attended_token

cdef class WorkerHost:
    cdef int wake_at(self, int worker, double t, long long version) except -1
    cdef int started(self, int sample, double t) except -1
    cdef int finished(self, int sample, double t) except -1

cdef class SimulatedWorker:
    cdef Columns columns
    cdef WorkerHost host
    cdef int index
    cdef Times times
    cdef long long chunk_tokens, max_running
    cdef bint overlap
    cdef CachePools pools
    cdef WaitingQueue waiting
    cdef vector[pair[long long, int]] running
    cdef vector[int] batch
    cdef int partial
    cdef long long partial_computed
    cdef long long freed
    cdef bint full, held_back
    cdef long long steps, prefills, context_tokens, run_steps
    cdef int operation
    cdef double operation_start, step_s, step_growth_s
    cdef long long version
    cdef readonly long long input_tokens, new_prefill_tokens, generated_tokens
    cdef readonly double busy_s, priority_s
    # the prefill batch being built
    cdef long long budget, new_tokens
    cdef double attended, cost

    cdef int enqueue(self, int sample, long long turn, double t) except -1
    cdef int release(self, int sample) except -1
    cdef int wake(self, double t) except -1
    cdef int cut_run(self, double t) except -1
    cdef int end_prefill(self, double t) except -1
    cdef int end_run(self, double t) except -1
    cdef int finish(self, int sample, double t) except -1
    cdef int next_step(self, double t) except -1
    cdef int begin_run(self, double t) except -1
    cdef int wake_after_run(self) except -1
    cdef int build_batch(self, double t) except -1
    cdef void prefill(self, int sample, long long computed)
