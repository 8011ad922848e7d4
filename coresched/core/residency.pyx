"""Routing-residency: the order of a worker's waiting queue by what the engine's cache holds now.

RP guesses from admissions which trajectories are cached, in a set of a capacity C_A that must be right. Here
the engine tells: requests of trajectories whose state it still holds come first (``key = (0, t)``), the others
follow (``key = (1, t)``), both in queue-entry order. No prefix hit is asked for and there is no capacity.
"""

from coresched.core.checks cimport check_label
from coresched.core.prefix cimport LabelTiers, Waiting, next_version


cdef class ResidencyPolicy(LabelTiers):
    """ResidencyPolicy()\n--\n
    The routing-residency order of one worker, with the labels of the trajectories that its cache holds.

    >>> from coresched.core import Waiting
    >>> policy = ResidencyPolicy()
    >>> policy.resident("warm")
    >>> waiting = [Waiting("r1", "cold", 1.0), Waiting("r2", "warm", 2.0)]
    >>> [request.id for request in policy.order(waiting)]
    ['r2', 'r1']
    >>> policy.evicted("warm")
    >>> [request.id for request in policy.order(waiting)]
    ['r1', 'r2']
    """

    def __cinit__(self):
        self._labels = set()

    def order(self, waiting):
        """A new list of the same requests, best first; full ties keep their present order.

        Raises TypeError for something else than a `Waiting`.
        """
        cdef list ordered = list(waiting)
        self.arrange(ordered)
        return ordered

    def resident(self, label):
        """The cache holds this trajectory's state. O(1). Raises TypeError or ValueError if it is not a label."""
        label = check_label(label, "label")
        if label not in self._labels:
            self._labels.add(label)
            self.version = next_version()

    def evicted(self, label):
        """The cache holds it no longer, if it did. O(1)."""
        if label in self._labels:
            self._labels.discard(label)
            self.version = next_version()

    def clear(self):
        """The cache was emptied."""
        if self._labels:
            self._labels.clear()
            self.version = next_version()

    def labels(self):
        """The labels of what the cache holds, in no order."""
        return frozenset(self._labels)

    def __len__(self):
        return len(self._labels)

    cdef long long _rank(self, Waiting request) noexcept:
        return 0
