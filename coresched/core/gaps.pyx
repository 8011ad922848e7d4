"""Which idle trajectories are still expected back, from the gaps between the turns seen so far.

A worker is never told that a trajectory has ended. Between two turns it is idle for a gap, the time of its
environment stage; after its last turn it is idle for ever, and what the cache keeps of it is garbage. The two
look alike at first. The longer the gap, the less likely it is one.
"""

from libcpp.algorithm cimport sort
from libcpp.vector cimport vector

from coresched.core.checks cimport check_count, check_label, shown

cdef enum:
    OPEN = -1
    SUPERSEDED = -2


cdef class TurnGaps:
    """TurnGaps(least_probability=0.25, window=4096)\n--\n
    Learns the gaps between the turns of trajectories, and from them how long an idle one may be live.

    Of the last ``window`` gaps (at least 1) it estimates S(g), the share longer than g, by Kaplan and Meier's
    product limit: a gap that is still open counts as longer than it is now, with no guess of its end. S does
    not fall to 0, for some trajectories have ended: their share is S at the longest gap that did end. So one
    that has been idle for g comes back with probability ``(S(g) - S(inf)) / S(g)``. It is expected back while
    that is at least ``least_probability``, above 0 and at most 1.

    ``now`` is any count that never falls, the same in all calls, such as steps of the engine: integers, so
    that all ranks of one model decide alike. Not for several threads at once.

    >>> gaps = TurnGaps()
    >>> for label, back in (("a", 3), ("b", 5), ("c", 4)):
    ...     gaps.ended(label, now=0)
    >>> gaps.expected("a", now=1)  # nothing came back yet, so nothing is expected
    False
    >>> gaps.began("a", now=3)
    >>> gaps.began("b", now=5)
    >>> gaps.expected("c", now=5), gaps.expected("c", now=6)
    (True, False)
    """

    def __cinit__(self, least_probability=0.25, window=4096):
        if type(least_probability) is not float and type(least_probability) is not int:
            raise TypeError(f"least_probability must be a number, got {shown(least_probability)}")
        if not 0 < least_probability <= 1:
            raise ValueError(
                f"least_probability must be above 0 and at most 1, got {shown(least_probability)}"
            )
        self.least_probability = least_probability
        self.window = check_count(window, "window", 1)
        self._labels = []
        self._open = {}
        self._limit = -1

    def ended(self, label, long long now):
        """A turn of the trajectory ended: its gap begins, instead of one that it may be in. O(1).

        Raises TypeError or ValueError if it is not a label, ValueError if ``now`` fell.
        """
        cdef TurnGap gap
        label = check_label(label, "label")
        self._advance(now)
        self._close(label, SUPERSEDED)
        gap.began, gap.length = now, OPEN
        if <long long>self._gaps.size() < self.window:
            self._gaps.push_back(gap)
            self._labels.append(label)
        else:
            if self._gaps[self._next].length == OPEN:
                del self._open[self._labels[self._next]]
            self._gaps[self._next] = gap
            self._labels[self._next] = label
        self._open[label] = self._next
        self._next = (self._next + 1) % self.window

    def began(self, label, long long now):
        """A turn of the trajectory waits: its gap, if it is in one, has ended. O(1). Raises as `ended` does."""
        label = check_label(label, "label")
        self._advance(now)
        place = self._open.get(label)
        if place is not None:
            self._close(label, now - self._gaps[<size_t>place].began)

    def forget(self, label):
        """The trajectory has ended: the gap that it may be in is none, and is not counted. O(1)."""
        if label in self._open:
            self._close(label, SUPERSEDED)

    def expected(self, label, long long now):
        """Whether the trajectory is in a gap that is likely to end. Raises ValueError if ``now`` fell."""
        self._advance(now)
        place = self._open.get(label)
        return place is not None and now - self._gaps[<size_t>place].began <= self.limit

    @property
    def limit(self):
        """The longest gap after which a trajectory is expected back; -1 if none is.

        Estimated again when a 32nd of the gaps are new, in O(n log n) for n of them.
        """
        if self._changes and 32 * self._changes >= <long long>self._gaps.size():
            self._changes = 0
            self._limit = self._longest_expected()
        return self._limit

    cdef int _advance(self, long long now) except -1:
        if now < self._now:
            raise ValueError(f"now must not fall, got {now} after {self._now}")
        self._now = now
        return 0

    cdef int _close(self, object label, long long length) except -1:
        place = self._open.pop(label, None)
        if place is not None:
            self._gaps[<size_t>place].length = length
        self._changes += 1
        return 0

    cdef vector[SeenGap] _seen(self):
        cdef vector[SeenGap] seen
        cdef SeenGap one
        cdef size_t place
        for place in range(self._gaps.size()):
            if self._gaps[place].length == SUPERSEDED:
                continue
            one.ended = self._gaps[place].length != OPEN
            one.length = self._gaps[place].length if one.ended else self._now - self._gaps[place].began
            seen.push_back(one)
        sort(seen.begin(), seen.end())
        return seen

    cdef long long _longest_expected(self):
        cdef vector[SeenGap] seen = self._seen()
        cdef vector[long long] lengths  # at which gaps ended, ascending
        cdef vector[double] shares      # S just before each
        cdef double share = 1.0
        cdef size_t place = 0, first
        cdef long long ended
        while place < seen.size():
            first, ended = place, 0
            while place < seen.size() and seen[place].length == seen[first].length:
                ended += seen[place].ended
                place += 1
            if ended:
                lengths.push_back(seen[first].length)
                shares.push_back(share)
                share *= 1.0 - <double>ended / <double>(seen.size() - first)
        while not shares.empty():
            if shares.back() - share >= self.least_probability * shares.back():
                return lengths[shares.size() - 1]
            shares.pop_back()
        return -1
