"""CAAS: chain-advancing action scheduling, the order of the environment queue.

``key = (floor(a / B), -n, floor(mean(tau) / D_I), e)``, ascending, fixed when the job joins: ``a`` is the
slot-request time, ``n`` the completed inference turns, ``tau`` their durations, ``e`` the entry sequence.
"""

cimport cython
from libc.math cimport floor, isfinite

from coresched.core.checks cimport check_count, check_finite, check_positive, shown


@cython.final
@cython.freelist(64)
cdef class Entry:
    """A waiting job with its key."""


cdef inline bint before(Entry one, Entry other) noexcept:
    if one.band != other.band:
        return one.band < other.band
    if one.turns != other.turns:
        return one.turns > other.turns
    if one.bucket != other.bucket:
        return one.bucket < other.bucket
    return one.sequence < other.sequence


cdef class ChainAdvancingQueue:
    """ChainAdvancingQueue(band_s=30.0, bucket_s=1.0)\n--\n
    Environment jobs in the order they should get a slot: by arrival band, then the deepest trajectory.

    ``band_s`` (B) and ``bucket_s`` (D_I) are in seconds, finite and above 0. A small band approaches first
    come, first served; a large one favours depth. Jobs are any hashable objects, each waiting at most once.
    push, pop and discard take O(log n); memory is O(jobs waiting). Not for several threads at once.

    >>> jobs = ChainAdvancingQueue(band_s=30.0, bucket_s=1.0)
    >>> jobs.push("shallow", requested_at=1.0, turns=2, mean_inference_s=0.5)
    >>> jobs.push("deep", requested_at=29.0, turns=7, mean_inference_s=1.8)
    >>> jobs.pop()
    'deep'
    """

    def __cinit__(self, band_s=30.0, bucket_s=1.0):
        self.band_s = check_positive(band_s, "band_s")
        self.bucket_s = check_positive(bucket_s, "bucket_s")
        self._heap = []
        self._entries = {}
        self._sequence = 0

    cpdef push(self, object job, object requested_at, object turns, object mean_inference_s):
        """Let a job wait, with the key it has until it leaves.

        ``requested_at``: seconds since the batch began, any finite number. ``turns``: completed inference
        turns of its trajectory, including the one that produced the job. ``mean_inference_s``: mean duration
        of those turns in seconds, finite and not below 0. The quotients in the key are rounded to doubles
        before the floor, as ``math.floor(a / B)`` does.
        Raises TypeError or ValueError for a bad argument, a quotient beyond the doubles or a job that waits
        already; the queue is then as it was.
        """
        self.enter(
            job,
            check_finite(requested_at, "requested_at"),
            check_count(turns, "turns", 0),
            check_finite(mean_inference_s, "mean_inference_s"),
        )

    cdef int enter(self, object job, double requested_at, long long turns, double mean_inference_s) except -1:
        cdef double band = floor(requested_at / self.band_s)
        cdef double bucket = floor(mean_inference_s / self.bucket_s)
        cdef Entry entry
        if not isfinite(band):
            raise ValueError(
                "requested_at must be a finite number of bands, "
                f"got {requested_at!r} s with band_s={self.band_s!r}"
            )
        if not mean_inference_s >= 0.0:
            raise ValueError(f"mean_inference_s must be at least 0, got {mean_inference_s!r}")
        if not isfinite(bucket):
            raise ValueError(
                "mean_inference_s must be a finite number of buckets, "
                f"got {mean_inference_s!r} s with bucket_s={self.bucket_s!r}"
            )
        if job in self._entries:
            raise ValueError(f"job must not be waiting already, got {shown(job)}")
        entry = Entry.__new__(Entry)
        entry.job = job
        entry.band = band
        entry.turns = turns
        entry.bucket = bucket
        entry.sequence = self._sequence
        self._entries[job] = entry
        self._heap.append(entry)
        self._sequence += 1
        self._rise(entry, len(self._heap) - 1)
        return 0

    cpdef object pop(self):
        """Remove and return the job that is next. Raises IndexError when none waits."""
        cdef Entry entry
        if not self._heap:
            raise IndexError("pop from a queue in which no job waits")
        entry = <Entry>self._heap[0]
        del self._entries[entry.job]
        self._take(entry)
        return entry.job

    cpdef object peek(self):
        """The job that pop would return. Raises IndexError when none waits."""
        if not self._heap:
            raise IndexError("peek into a queue in which no job waits")
        return (<Entry>self._heap[0]).job

    cpdef bint discard(self, object job) except -1:
        """Remove a job wherever it stands; whether it was waiting."""
        cdef object entry = self._entries.pop(job, None)
        if entry is None:
            return False
        self._take(<Entry>entry)
        return True

    def __len__(self):
        return len(self._heap)

    def __contains__(self, job):
        return job in self._entries

    # An indexed heap: every entry knows its place, so that discard needs no search and leaves nothing behind.

    cdef int _take(self, Entry entry) except -1:
        cdef Entry last = <Entry>self._heap.pop()
        if last is not entry:
            self._sink(last, entry.place)
            self._rise(last, last.place)
        return 0

    @cython.boundscheck(False)
    @cython.wraparound(False)
    cdef void _rise(self, Entry entry, Py_ssize_t place) noexcept:
        cdef list heap = self._heap
        cdef Entry parent
        while place > 0:
            parent = <Entry>heap[(place - 1) >> 1]
            if not before(entry, parent):
                break
            heap[place] = parent
            parent.place = place
            place = (place - 1) >> 1
        heap[place] = entry
        entry.place = place

    @cython.boundscheck(False)
    @cython.wraparound(False)
    cdef void _sink(self, Entry entry, Py_ssize_t place) noexcept:
        cdef list heap = self._heap
        cdef Py_ssize_t child
        cdef Py_ssize_t size = len(heap)
        cdef Entry lower
        while True:
            child = 2 * place + 1
            if child >= size:
                break
            if child + 1 < size and before(<Entry>heap[child + 1], <Entry>heap[child]):
                child += 1
            lower = <Entry>heap[child]
            if not before(lower, entry):
                break
            heap[place] = lower
            lower.place = place
            place = child
        heap[place] = entry
        entry.place = place
