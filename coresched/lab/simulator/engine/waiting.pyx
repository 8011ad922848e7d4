# cython: boundscheck=False, wraparound=False
"""One worker's waiting queue: who is next by the worker's policy, and what finding that out costs."""

from libcpp.vector cimport vector

from coresched.core.prefix cimport RoutingPrefixPolicy, Waiting
from coresched.lab.simulator.engine.columns cimport Columns
from coresched.lab.simulator.engine.ordering cimport arrange_by_hits
from coresched.lab.simulator.engine.pools cimport CachePools
from coresched.lab.simulator.engine.residency cimport Residency

from coresched.lab.simulator.orders.order import LONG_QUEUE
from coresched.lab.simulator.orders.registry import ordered_queue
from coresched.lab.simulator.settings import RESIDENCY_POLICIES, WORKER_POLICIES

cdef enum:
    FCFS, LPM, DFS_WEIGHT, ROUTING_PREFIX, ROUTING_RESIDENCY, ROUTING_RESIDENCY_UNGUARDED  # in the order of WORKER_POLICIES
    PLAIN = 100  # any that is in plain Python
cdef Py_ssize_t long_queue = LONG_QUEUE


cdef class WaitingQueue:
    """The requests that no batch has taken yet.

    The worker tells it of each arrival, admission and end, of samples that have finished and of its steps.
    """

    def __init__(self, Columns columns, CachePools pools, settings, times):
        policy = settings.worker_policy
        self.columns = columns
        self.pools = pools
        self.match_s = times.match_s
        self.match_token_s = times.match_token_s
        self.tree_node_s = times.tree_node_s
        self.queue_entry_s = times.queue_entry_s
        self.prefix_policy = RoutingPrefixPolicy(settings.label_capacity)
        self.plain = ordered_queue(policy, columns.workload, times, self.ask)
        self.policy = PLAIN if self.plain is not None else WORKER_POLICIES.index(policy)
        if policy in RESIDENCY_POLICIES:
            self.residency = Residency(columns, pools, self.policy == ROUTING_RESIDENCY)
        self.requests = []
        self.turn_of.assign(columns.samples, 0)

    cdef int arrived(self, int sample, long long turn, double t) except -1:
        cdef str label = self.columns.labels[sample]
        cdef Waiting request = Waiting(label, label, t)
        request.index = sample
        self.turn_of[sample] = turn
        self.requests.append(request)
        self.entered += 1
        if self.residency is not None:
            self.residency.arrived(sample)
        if self.policy == PLAIN:
            self.plain.arrived(sample, turn, t)
        return 0

    cdef int at(self, Py_ssize_t place) except -1:
        """The sample whose request is at that place."""
        return (<Waiting>self.requests[place]).index

    cdef bint holds_back(self, int sample, long long final_tokens) noexcept:
        """Whether the sample's request must wait while others run, though there is room for it."""
        return self.residency is not None and self.residency.holds_back(sample, final_tokens)

    cdef int admitted(self, Py_ssize_t count, long long new_tokens, double t) except -1:
        """The first ``count`` requests leave for a batch, which computes ``new_tokens`` of prompts in all."""
        cdef Py_ssize_t place
        if count > 0:
            if self.policy == ROUTING_PREFIX:
                for place in range(count):
                    self.prefix_policy.admitted((<Waiting>self.requests[place]).label)
            elif self.policy == PLAIN:
                for place in range(count):
                    self.plain.admitted(self.at(place), t)
            del self.requests[:count]
        if self.policy == PLAIN:
            self.plain.prefilled(new_tokens)
        return 0

    cdef int ended(self, int sample, double t) except -1:
        """The sample's turn has ended and left an entry."""
        if self.residency is not None:
            self.residency.finished(sample)
        if self.policy == PLAIN:
            self.plain.ended(sample, t)
        return 0

    cdef int release(self, int sample) except -1:
        """The sample has finished, and the pools hold nothing of it."""
        self.prefix_policy.forget(self.columns.labels[sample])
        if self.residency is not None:
            self.residency.release(sample)
        return 0

    cdef int tick(self, long long now) except -1:
        """The engine has made ``now`` steps."""
        if self.residency is not None:
            self.residency.tick(now)
        return 0

    # --- the order

    cdef double order(self, double t) except -1:
        """Sort by the worker's policy; returns what that costs, in seconds."""
        cdef Py_ssize_t count = len(self.requests), entered = self.entered
        self.entered = 0
        if self.policy == ROUTING_PREFIX:
            return self.order_by_prefix_policy()
        if self.residency is not None:
            self.residency.order(self.requests, entered)
            return self.queue_entry_s * count
        if self.policy == PLAIN:
            return self.order_plainly(t)
        if self.policy == FCFS or (self.policy == LPM and count > long_queue):
            return 0.0
        return self.order_by_hits()

    cdef double order_by_prefix_policy(self) except -1:
        cdef Waiting request
        cdef double cost = 0.0
        for request in self.prefix_policy.unasked(self.requests):
            request.tokens_hit = self.match(request.index)
            cost += self.match_s + self.match_token_s * request.tokens_hit
        self.prefix_policy.arrange(self.requests)
        return cost + self.queue_entry_s * len(self.requests)

    cdef double order_by_hits(self) except -1:
        cdef Py_ssize_t count = len(self.requests), place
        cdef vector[long long] hits
        cdef double cost = count * (self.match_s + self.queue_entry_s)
        for place in range(count):
            hits.push_back(self.match(self.at(place)))
        for place in range(count):
            cost += self.match_token_s * hits[place]
        if self.policy == DFS_WEIGHT:
            cost += self.tree_node_s * self.pools.tree_nodes
        arrange_by_hits(self.requests, self.columns, hits, self.policy == DFS_WEIGHT)
        return cost

    cdef double order_plainly(self, double t) except -1:
        cdef Waiting request
        cdef dict queued = {}
        cdef double cost
        for request in self.requests:
            queued[request.index] = request
        samples, cost = self.plain.arrange(list(queued), t)
        self.requests = [queued[sample] for sample in samples]
        return cost

    cdef long long match(self, int sample) except -1:
        """Query the prefix cache, which refreshes the entry."""
        self.pools.touch(sample)
        return self.pools.hit(sample, self.columns.prompt[self.turn_of[sample]])

    def ask(self, int sample):
        """What an order in plain Python asks in the midst of a pass: the prefix hit of a waiting sample."""
        return self.match(sample)
