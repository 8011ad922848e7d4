"""The order in which the samples of a batch are admitted.

By submission, or the longest expected first: a batch ends with its last sample, and a long one that begins late
runs on alone (the LPT rule of R. L. Graham, Bounds on multiprocessing timing anomalies, 1969). A sample of which
nothing is expected counts with the median of what was expected so far of the others: it is neither kept for the
end, where a long one would do the most harm, nor does it push back those that are known to be long.
"""

cimport cython
from libc.math cimport isnan

from heapq import heappop, heappush, heappushpop

from coresched.batch.sample cimport WAITING

cdef tuple POLICIES = ("submission", "longest-expected-first")


@cython.final
cdef class AdmissionOrder:
    """The samples that wait for admission, for compiled callers. Every step takes O(log samples) amortised.

    ``policy`` is "submission" or "longest-expected-first". Under both, a sample that was passed by the order, put
    back and submitted again goes first, by its first place. Equal expectations go by place. The median is the upper
    one of the batch's expectations, those of samples admitted long ago too. Raises ValueError for another policy.
    """

    def __cinit__(self, policy):
        if policy not in POLICIES:
            raise ValueError(
                f'admission_policy must be "submission" or "longest-expected-first", got {policy!r}'
            )
        self._longest_first = policy == "longest-expected-first"
        self._plain = []
        self._expected = []
        self._again = []
        self._shorter = []
        self._longer = []

    cdef int enter(self, Sample sample) except -1:
        """A new sample, with its place and what is expected of it."""
        sample.listed = True
        if self._longest_first and not isnan(sample.expected):
            self._note(sample.expected)
            heappush(self._expected, (-sample.expected, sample.place, sample))
        else:
            self._plain.append(sample)
        return 0

    cdef int enter_again(self, Sample sample) except -1:
        """A sample that was put back waits again: in its place if that is still ahead, else before all others."""
        if not sample.listed:
            sample.listed = True
            heappush(self._again, (sample.place, sample))
        return 0

    cdef Sample next(self):
        """The next sample that waits, which is no longer listed; None without one."""
        cdef Sample sample, plain, expected
        # Who does not wait any more is stepped over, once.
        while self._again:
            sample = <Sample>(<tuple>heappop(self._again))[1]
            sample.listed = False
            if sample.state == WAITING:
                return sample
        plain = expected = None
        while self._next < len(self._plain):
            plain = <Sample>self._plain[self._next]
            if plain.state == WAITING:
                break
            plain.listed = False
            self._next += 1
            plain = None
        while self._expected:
            expected = <Sample>(<tuple>self._expected[0])[2]
            if expected.state == WAITING:
                break
            expected.listed = False
            heappop(self._expected)
            expected = None
        if expected is not None and (plain is None or self._before(expected, plain)):
            heappop(self._expected)
            sample = expected
        elif plain is not None:
            self._next += 1
            sample = plain
        else:
            return None
        sample.listed = False
        return sample

    cdef bint _before(self, Sample expected, Sample plain) except -1:
        """Whether a sample goes before one of which nothing is expected."""
        cdef double median = self._longer[0]
        if expected.expected == median:
            return expected.place < plain.place
        return expected.expected > median

    cdef int _note(self, double expected) except -1:
        """One more value for the median, which is the least of the upper half."""
        if len(self._longer) > len(self._shorter):
            heappush(self._shorter, -<double>heappushpop(self._longer, expected))
        else:
            heappush(self._longer, -<double>heappushpop(self._shorter, -expected))
        return 0
