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
    """A waiting job, and where its key stands."""


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
        cdef ChainKey key
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
        entry = Entry.__new__(Entry)
        entry.job = job
        if self._heap.size() == self._heap.capacity():  # so that nothing fails once the job is an entry
            self._heap.reserve(2 * self._heap.size() + 16)
        if self._entries.setdefault(job, entry) is not entry:
            raise ValueError(f"job must not be waiting already, got {shown(job)}")
        key.band, key.turns, key.bucket, key.sequence = band, turns, bucket, self._sequence
        key.entry = <void*>entry
        self._heap.push_back(key)
        self._sequence += 1
        self._rise(key, self._heap.size() - 1)
        return 0

    cpdef object pop(self):
        """Remove and return the job that is next. Raises IndexError when none waits."""
        cdef Entry entry
        if self._heap.empty():
            raise IndexError("pop from a queue in which no job waits")
        entry = <Entry>self._heap[0].entry
        del self._entries[entry.job]
        self._take(entry.place)
        return entry.job

    cpdef object peek(self):
        """The job that pop would return. Raises IndexError when none waits."""
        if self._heap.empty():
            raise IndexError("peek into a queue in which no job waits")
        return (<Entry>self._heap[0].entry).job

    cpdef bint discard(self, object job) except -1:
        """Remove a job wherever it stands; whether it was waiting."""
        cdef object entry = self._entries.pop(job, None)
        if entry is None:
            return False
        self._take((<Entry>entry).place)
        return True

    def __len__(self):
        return <Py_ssize_t>self._heap.size()

    def __contains__(self, job):
        return job in self._entries

    # An indexed heap: every entry knows its place, so that discard needs no search and leaves nothing behind.
    # The keys stand in it by value: what is compared with each other lies side by side.

    cdef void _take(self, size_t place) noexcept:
        """Remove the key at that place; the last one takes it, from as far down as keys can be moved up."""
        cdef ChainKey last = self._heap.back()
        self._heap.pop_back()
        if place < self._heap.size():
            self._rise(last, self._deepest(place))

    cdef void _rise(self, ChainKey key, size_t place) noexcept:
        """Put the key there or above, as far as it is smaller than its parents."""
        cdef ChainKey* heap = self._heap.data()
        cdef size_t parent
        while place > 0:
            parent = (place - 1) >> 2
            if not key < heap[parent]:
                break
            heap[place] = heap[parent]
            (<Entry>heap[place].entry).place = place
            place = parent
        heap[place] = key
        (<Entry>key.entry).place = place

    cdef size_t _deepest(self, size_t place) noexcept:
        """Move the smallest children up, from that place down; the place that is left free at the end."""
        cdef ChainKey* heap = self._heap.data()
        cdef size_t size = self._heap.size()
        cdef size_t child, end, least
        while True:
            child = 4 * place + 1
            if child >= size:
                return place
            end = min(child + 4, size)
            least = child
            while child + 1 < end:
                child += 1
                if heap[child] < heap[least]:
                    least = child
            heap[place] = heap[least]
            (<Entry>heap[place].entry).place = place
            place = least
