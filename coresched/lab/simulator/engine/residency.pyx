# cython: boundscheck=False, wraparound=False
"""Routing-residency inside one worker: who is cached, who is expected back, and who must wait."""

from coresched.core.prefix cimport Waiting


cdef class Residency:
    """The tier of the cached, and the guard where the worker has one, by the core that the adapters use.

    The clock is the engine's steps: decode steps and prefill batches. A trajectory is live while it waits or
    runs, and while `TurnGaps` expects it back.
    """

    def __init__(self, Columns columns, CachePools pools, bint guarded):
        self.columns = columns
        self.pools = pools
        self.pools.tells_losses = True
        self.policy = ResidencyPolicy()
        self.gaps = TurnGaps() if guarded else None

    cdef int tick(self, long long now) except -1:
        """The clock is at ``now``; who has been idle for too long is live no more."""
        self.pools.clock = now
        if self.gaps is not None:
            # An entry is idle since its turn ended, so this is what TurnGaps.expected says of each.
            self.pools.spared_since = now - <long long>self.gaps.limit
        return 0

    cdef void arrived(self, int sample) noexcept:
        """A request of the sample waits."""
        if self.gaps is not None:
            self.pools.expect(sample)

    cdef int order(self, list waiting, Py_ssize_t entered) except -1:
        """Sort the waiting queue, whose last ``entered`` requests are seen for the first time."""
        cdef Py_ssize_t place
        self.learn()
        if self.gaps is not None and entered > 0:
            for place in range(len(waiting) - entered, len(waiting)):
                self.gaps.began((<Waiting>waiting[place]).label, self.pools.clock)
            self.tick(self.pools.clock)
        self.policy.arrange(waiting)
        return 0

    cdef int finished(self, int sample) except -1:
        """The sample's turn has ended and left an entry."""
        cdef object label = self.columns.labels[sample]
        self.learn()
        self.policy.resident(label)
        if self.gaps is not None:
            self.gaps.ended(label, self.pools.clock)
        return 0

    cdef int release(self, int sample) except -1:
        """The sample has finished, and the pools hold nothing of it."""
        cdef object label = self.columns.labels[sample]
        self.policy.evicted(label)
        if self.gaps is not None:
            self.gaps.forget(label)
        return 0

    cdef bint holds_back(self, int sample, long long final_tokens) noexcept:
        """Whether the guard lets the sample's request wait while others run."""
        return (
            self.gaps is not None
            and self.pools.tokens[sample] < 0
            and not self.pools.has_room_beside_live(sample, final_tokens)
        )

    cdef int learn(self) except -1:
        """Tell the policy what the pools have evicted."""
        cdef size_t place
        for place in range(self.pools.lost.size()):
            self.policy.evicted(self.columns.labels[self.pools.lost[place]])
        self.pools.lost.clear()
        return 0
