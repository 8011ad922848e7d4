"""The order in which samples of a batch are admitted, and in which those that were offered are taken up.

By submission, or the longest expected first: a batch ends with its last sample, and a long one that begins late
runs on alone (the LPT rule of R. L. Graham, Bounds on multiprocessing timing anomalies, 1969). A sample of which
nothing is expected counts with the median of what was expected of the others so far: it is neither kept for the
end, where a long one would do the most harm, nor does it push back those that are known to be long.
"""

cimport cython
from libc.math cimport NAN, isnan

from heapq import heappop, heappush, heappushpop

from coresched.core.checks cimport check_finite

cdef tuple POLICIES = ("submission", "longest-expected-first")


def check_expected(expected):
    """What is expected of a sample: a finite number of at least 0, or None. Raises TypeError or ValueError."""
    if expected is not None and check_finite(expected, "expected") < 0:
        raise ValueError(f"expected must be at least 0, got {expected!r}")


@cython.final
cdef class Entry:
    """One sample in an order; `item` is what it was added as. Made by `AdmissionOrder.add`."""

    def __init__(self):
        raise TypeError("an Entry is made by AdmissionOrder.add, not directly")


@cython.final
cdef class AdmissionOrder:
    """AdmissionOrder(policy)\n--\n
    Samples that wait, in the order of ``policy``: "submission" or "longest-expected-first". Its length is their
    number.

    Submission order is that of `add`, also of samples that left it and were put back. Longest expected first goes
    by the lengths that `add` was told, equal ones by submission. A sample without one has the upper median of all
    that were told so far; a sample that was taken and put back goes before all that never were, such by submission.
    Every step takes O(log samples), amortised. Raises ValueError for another policy.

    >>> order = AdmissionOrder("longest-expected-first")
    >>> short, unknown, long = order.add("short", 2), order.add("unknown"), order.add("long", 30.0)
    >>> order.take(order.first())
    >>> order.first().item
    'unknown'
    """

    def __init__(self, policy):
        if policy not in POLICIES:
            raise ValueError(
                f'admission_policy must be "submission" or "longest-expected-first", got {policy!r}'
            )
        self.policy = policy
        self._longest_first = policy == "longest-expected-first"
        self._plain = []
        self._expected = []
        self._again = []
        self._shorter = []
        self._longer = []

    def __len__(self):
        return self._waiting

    cpdef Entry add(self, object item, object expected=None):
        """A new sample waits. ``expected`` is how long it will be, in any one unit, or None.

        Raises TypeError or ValueError for what is no such number.
        """
        check_expected(expected)
        cdef Entry entry = Entry.__new__(Entry)
        entry.item = item
        entry.place = self._places
        entry.expected = NAN
        if expected is not None and self._longest_first:
            entry.expected = expected
            self._note(entry.expected)
        self._places += 1
        self._list(entry)
        return entry

    cpdef object take(self, Entry entry):
        """The sample, which waits, is let in."""
        self.discard(entry)
        entry.taken = True

    cpdef object discard(self, Entry entry):
        """The sample, which waits, does so no more; put back, it has its place again."""
        entry.waiting = False
        self._waiting -= 1

    cpdef object put_back(self, Entry entry):
        """The sample, which does not wait, does so again."""
        self._list(entry)

    cpdef Entry first(self):
        """The first that waits; None if there is none."""
        cdef Entry plain = None, expected = None, again
        # Who left stays where it lies until it comes to the front.
        while self._again:
            again = <Entry>(<tuple>self._again[0])[1]
            if again.waiting:
                return again
            again.in_again = False
            heappop(self._again)
        while self._plain:
            plain = <Entry>(<tuple>self._plain[0])[1]
            if plain.waiting and not plain.in_again:
                break
            plain.in_order = False
            heappop(self._plain)
            plain = None
        while self._expected:
            expected = <Entry>(<tuple>self._expected[0])[2]
            if expected.waiting and not expected.in_again:
                break
            expected.in_order = False
            heappop(self._expected)
            expected = None
        if expected is None or (plain is not None and not self._before(expected, plain)):
            return plain
        return expected

    cdef int _list(self, Entry entry) except -1:
        entry.waiting = True
        self._waiting += 1
        if entry.taken and self._longest_first:
            if not entry.in_again:
                entry.in_again = True
                heappush(self._again, (entry.place, entry))
        elif not entry.in_order:
            entry.in_order = True
            if isnan(entry.expected):
                heappush(self._plain, (entry.place, entry))
            else:
                heappush(self._expected, (-entry.expected, entry.place, entry))
        return 0

    cdef bint _before(self, Entry expected, Entry plain) except -1:
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
