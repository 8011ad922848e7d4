from libcpp.vector cimport vector

from coresched.core.prefix cimport RoutingPrefixPolicy
from coresched.lab.simulator.engine.columns cimport Columns
from coresched.lab.simulator.engine.pools cimport CachePools
from coresched.lab.simulator.engine.residency cimport Residency

cdef class WaitingQueue:
    cdef Columns columns
    cdef CachePools pools
    cdef int policy
    cdef double match_s, match_token_s, tree_node_s, queue_entry_s
    cdef RoutingPrefixPolicy prefix_policy
    cdef Residency residency     # None with other policies
    cdef object plain            # an OrderedQueue, or None
    cdef list requests           # of Waiting, in the order of the last pass
    cdef Py_ssize_t entered      # at the end of `requests`, that no pass has seen
    cdef vector[long long] turn_of

    cdef int arrived(self, int sample, long long turn, double t) except -1
    cdef double order(self, double t) except -1
    cdef int at(self, Py_ssize_t place) except -1
    cdef bint holds_back(self, int sample, long long final_tokens) noexcept
    cdef int admitted(self, Py_ssize_t count, long long new_tokens, double t) except -1
    cdef int ended(self, int sample, double t) except -1
    cdef int release(self, int sample) except -1
    cdef int tick(self, long long now) except -1
    cdef double order_by_prefix_policy(self) except -1
    cdef double order_by_hits(self) except -1
    cdef double order_plainly(self, double t) except -1
    cdef long long match(self, int sample) except -1
