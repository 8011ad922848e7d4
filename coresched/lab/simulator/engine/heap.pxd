from libcpp.vector cimport vector

cdef struct Event:
    double t
    long long sequence
    int kind
    int subject
    long long version

cdef class EventHeap:
    cdef vector[Event] events
    cdef long long sequence
    cdef void push(self, double t, int kind, int subject, long long version) noexcept
    cdef Event pop(self) noexcept
