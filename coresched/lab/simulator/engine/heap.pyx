# cython: boundscheck=False, wraparound=False
"""The event heap: earliest first, in order of entry among events of the same time."""


cdef inline bint earlier(const Event* a, const Event* b) noexcept:
    return a.t < b.t or (a.t == b.t and a.sequence < b.sequence)


cdef class EventHeap:
    """A binary heap of events. `pop` must not be called on an empty one."""

    cdef void push(self, double t, int kind, int subject, long long version) noexcept:
        cdef Event event
        cdef size_t hole, parent
        self.sequence += 1
        event.t = t
        event.sequence = self.sequence
        event.kind = kind
        event.subject = subject
        event.version = version
        self.events.push_back(event)
        hole = self.events.size() - 1
        while hole > 0:
            parent = (hole - 1) >> 1
            if earlier(&self.events[parent], &event):
                break
            self.events[hole] = self.events[parent]
            hole = parent
        self.events[hole] = event

    cdef Event pop(self) noexcept:
        cdef Event top = self.events[0]
        cdef Event last = self.events.back()
        cdef size_t size, hole = 0, child = 1
        self.events.pop_back()
        size = self.events.size()
        if size == 0:
            return top
        while child < size:
            if child + 1 < size and earlier(&self.events[child + 1], &self.events[child]):
                child += 1
            if earlier(&last, &self.events[child]):
                break
            self.events[hole] = self.events[child]
            hole = child
            child = 2 * hole + 1
        self.events[hole] = last
        return top
