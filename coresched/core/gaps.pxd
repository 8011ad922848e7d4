from libcpp.vector cimport vector


cdef extern from *:
    """
    struct TurnGap {
        long long began;
        long long length;  // below 0: open, or not to be counted
    };
    struct SeenGap {
        long long length;  // so far, if it is open
        bool ended;
        bool operator<(const SeenGap& other) const { return length < other.length; }
    };
    """
    cdef cppclass TurnGap:
        long long began
        long long length

    cdef cppclass SeenGap:
        long long length
        bint ended


cdef class TurnGaps:
    cdef readonly double least_probability
    cdef readonly long long window
    cdef vector[TurnGap] _gaps  # a ring, of which _next is overwritten next
    cdef list _labels           # whose gap it is, at the same places
    cdef dict _open             # label to the place of the gap that it is in
    cdef size_t _next
    cdef long long _now
    cdef long long _limit
    cdef long long _changes     # since the limit was estimated

    cdef int _advance(self, long long now) except -1
    cdef int _close(self, object label, long long length) except -1
    cdef vector[SeenGap] _seen(self)
    cdef long long _longest_expected(self)
