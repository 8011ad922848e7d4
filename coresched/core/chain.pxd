from libcpp.vector cimport vector


cdef extern from *:
    """
    struct ChainKey {
        double band;
        long long turns;
        double bucket;
        long long sequence;
        void* entry;  // whose key it is; its job's dict holds it
        bool operator<(const ChainKey& other) const {
            if (band != other.band) return band < other.band;
            if (turns != other.turns) return turns > other.turns;
            if (bucket != other.bucket) return bucket < other.bucket;
            return sequence < other.sequence;
        }
    };
    """
    cdef cppclass ChainKey:
        double band
        long long turns
        double bucket
        long long sequence
        void* entry
        bint operator<(const ChainKey&)


cdef class Entry:
    cdef object job
    cdef size_t place  # index in the heap


cdef class ChainAdvancingQueue:
    cdef readonly double band_s
    cdef readonly double bucket_s
    cdef vector[ChainKey] _heap  # smallest key first, four children each
    cdef dict _entries           # job -> its Entry
    cdef long long _sequence

    # C callers pass the arguments by position; Python callers by keyword.
    cpdef push(self, object job, object requested_at, object turns, object mean_inference_s)
    # The same with C numbers. The caller vouches for turns >= 0; the rest is checked.
    cdef int enter(self, object job, double requested_at, long long turns, double mean_inference_s) except -1
    cpdef object pop(self)
    cpdef object peek(self)
    cpdef bint discard(self, object job) except -1

    cdef void _take(self, size_t place) noexcept
    cdef void _rise(self, ChainKey key, size_t place) noexcept
    cdef size_t _deepest(self, size_t place) noexcept
