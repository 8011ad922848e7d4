"""Request imbalance: how unevenly the requests in flight lie on the workers, integrated over time.

``beta = 1/|J| integral over J of d(t) dt``, ``J = {t : N(t) > 1}``; N_w requests in flight on each of W workers,
N their sum, ``d = sum_w |N_w - N/W| / (2 N (1 - 1/W))``; for W = 2 that is ``|N_1 - N_2| / (N_1 + N_2)``.
"""

cimport cython
from libcpp.vector cimport vector


@cython.final
cdef class RequestImbalance:
    """RequestImbalance(loads=(), now=0.0)\n--\n
    beta of workers whose loads (requests in flight) change one request at a time; nothing is sampled.

    ``loads`` are those of all workers, ``now`` is in seconds on any monotonic clock. A change of one load takes
    O(1), of the set of workers O(W). With fewer than two workers no time counts. Not for several threads at once.

    >>> workers = RequestImbalance([1, 1], 0.0)
    >>> workers.began(1, 3.0)  # one has 2 from second 3 on
    >>> workers.ended(1, 6.0)  # the other has none from second 6 on
    >>> workers.integrals(8.0)  # 1/3 for 3 s, then 1 for 2 s, of 8 s
    (3.0, 8.0)
    """

    # What lies above the mean equals what is missing below it, and N_w > N/W iff N_w > f = floor(N/W). So with
    # A and c the sum and number of the loads above f, sum_w |N_w - N/W| = 2 (A - c N/W), and
    # d = (A W - c N) / (N (W - 1)). f moves by at most one with N, past loads whose number is in _at.
    cdef vector[long long] _at  # workers by load
    cdef long long _workers, _total, _floor, _count, _above
    cdef double _over_s, _busy_s, _now

    def __cinit__(self, loads=(), double now=0.0):
        self._now = now
        self._take(list(loads))

    def replace(self, loads, double now):
        """These are the loads from now on, of whichever workers there are."""
        loads = list(loads)
        self._advance(now)
        self._take(loads)

    def began(self, Py_ssize_t load, double now):
        """A worker with ``load`` requests in flight got one more. Raises LookupError if none has that load."""
        self._check(load, 0)
        self._advance(now)
        self._at[load] -= 1
        if load + 1 == <Py_ssize_t>self._at.size():
            self._at.push_back(0)
        self._at[load + 1] += 1
        if load == self._floor:
            self._count += 1
            self._above += load + 1
        elif load > self._floor:
            self._above += 1
        self._total += 1
        if self._total == (self._floor + 1) * self._workers:
            self._floor += 1
            self._count -= self._at[self._floor]
            self._above -= self._floor * self._at[self._floor]

    def ended(self, Py_ssize_t load, double now):
        """A worker with ``load`` requests in flight has one fewer. Raises LookupError if none has that load."""
        self._check(load, 1)
        self._advance(now)
        self._at[load] -= 1
        self._at[load - 1] += 1
        if load == self._floor + 1:
            self._count -= 1
            self._above -= load
        elif load > self._floor:
            self._above -= 1
        self._total -= 1
        if self._total < self._floor * self._workers:
            self._count += self._at[self._floor]
            self._above += self._floor * self._at[self._floor]
            self._floor -= 1

    @property
    def present(self):
        """d as it is now; None with fewer than two requests in flight."""
        return self._present() if self._counts() else None

    def integrals(self, double now):
        """The integral of d over J, and |J|, up to now, in seconds; beta is their quotient."""
        self._advance(now)
        return self._over_s, self._busy_s

    cdef inline bint _counts(self) noexcept:
        return self._total > 1 and self._workers > 1

    cdef inline double _present(self) noexcept:
        cdef double over = self._above * self._workers - self._count * self._total
        return over / <double>(self._total * (self._workers - 1))

    cdef inline void _advance(self, double now) noexcept:
        if self._counts():
            self._busy_s += now - self._now
            self._over_s += (now - self._now) * self._present()
        self._now = now

    cdef inline int _check(self, Py_ssize_t load, Py_ssize_t least) except -1:
        if not least <= load < <Py_ssize_t>self._at.size() or self._at[load] == 0:
            raise LookupError(f"load must be that of a worker, at least {least}, got {load}")
        return 0

    cdef int _take(self, list loads) except -1:
        cdef Py_ssize_t load
        if loads and min(loads) < 0:
            raise ValueError(f"loads must be at least 0, got {min(loads)}")
        self._workers = len(loads)
        self._total = sum(loads)
        self._floor = self._total // self._workers if loads else 0
        self._count = self._above = 0
        self._at.assign(<size_t>(max(loads) + 1 if loads else 1), 0)
        for load in loads:
            self._at[load] += 1
            if load > self._floor:
                self._count += 1
                self._above += load
        return 0
