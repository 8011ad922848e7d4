"""The resident slots of a batch: who holds one, and who waits for one, first come, first served.

Not in the order of the environment queue. A holder keeps its slot over turns and stages and cannot be preempted,
and most samples ask once, before their first turn, when all are equally deep; arrival is then what is left, and
nobody is overtaken for ever.
"""

cimport cython
from libc.math cimport NAN


@cython.final
cdef class ResidentSlots:
    """At most ``most`` samples hold a slot; the queue is in the order of arrival, within ``band_s`` in that of entry.

    For compiled callers; a sample holds or awaits one slot at most. Every step takes O(log queued) or less.
    """

    def __cinit__(self, Py_ssize_t most, double band_s):
        self._most = most
        self._queue = ChainAdvancingQueue(band_s)

    cdef int enter(self, Sample sample, double since, double arrival) except -1:
        """Wait for a slot."""
        self._queue.enter(sample, arrival, 0, 0.0)
        self.queued += 1
        sample.resident_requested_at = since
        sample.resident_started_at = NAN
        sample.resident_ended_at = NAN
        return 0

    cdef Sample next_grant(self, double now):
        """The first in the queue, which holds a slot now; None without a free slot or anyone who waits."""
        cdef Sample sample
        if self.queued == 0 or self.held >= self._most:
            return None
        sample = <Sample>self._queue.pop()
        self.queued -= 1
        self.held += 1
        sample.resident = True
        sample.resident_started_at = now
        sample.resident_wait_s += now - sample.resident_requested_at
        return sample

    cdef int leave(self, Sample sample, double now) except -1:
        """Give up the place in the queue."""
        self._queue.discard(sample)
        self.queued -= 1
        sample.resident_wait_s += now - sample.resident_requested_at
        return 0

    cdef int give_back(self, Sample sample, double now) except -1:
        """Free the slot that the sample holds."""
        self.held -= 1
        sample.resident = False
        sample.resident_ended_at = now
        sample.resident_s += now - sample.resident_started_at
        return 0
