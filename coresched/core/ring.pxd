from libcpp.vector cimport vector


cdef extern from *:
    """
    #include <algorithm>

    struct RingPoint {
        unsigned long long position;
        int slot;
    };

    struct RingWorker {
        long long in_flight;
        bool routable;
        // alpha weight / sum(weight) = p / q in lowest terms; p = 0 if they need more than 63 bits
        long long p, q;
        unsigned long long met;  // the last walk that met this worker
    };

    static inline bool ring_within_bound(const RingWorker& worker, long long total, long long slack) {
        return (__int128)(worker.in_flight - slack) * worker.q <= (__int128)worker.p * (total + 1);
    }

    // Sort by position what lies behind the first `ordered` points, which are sorted, and merge it with them.
    static inline void ring_merge(std::vector<RingPoint>& points, size_t ordered) {
        auto before = [](const RingPoint& one, const RingPoint& other) { return one.position < other.position; };
        std::sort(points.begin() + ordered, points.end(), before);
        std::inplace_merge(points.begin(), points.begin() + ordered, points.end(), before);
    }
    """
    cdef cppclass RingPoint:
        unsigned long long position
        int slot

    cdef cppclass RingWorker:
        long long in_flight
        bint routable
        long long p
        long long q
        unsigned long long met

    void ring_merge(vector[RingPoint]& points, size_t ordered) except +
    bint ring_within_bound(const RingWorker& worker, long long total, long long slack) noexcept


cdef class LoadBoundedRouter:
    cdef readonly double load_bound
    cdef readonly long long virtual_nodes
    cdef readonly long long slack
    cdef object _alpha                # Fraction
    cdef bint _weighted               # whether the weights of the routable differ
    cdef dict _slots                  # name -> slot: the routable, and the removed with requests in flight
    cdef dict _weights                # name -> Fraction: the routable, in order of addition
    cdef list _names                  # slot -> name, None when the slot is free
    cdef list _shares                 # slot -> the fraction p / q, exact at any size
    cdef list _free                   # slots to use again
    cdef vector[RingWorker] _workers  # by slot
    cdef vector[RingPoint] _points    # ascending by (position, worker name)...
    cdef size_t _ordered              # ... as far as this; those of workers that joined since lie behind
    cdef long long _total             # requests in flight on the routable workers
    cdef unsigned long long _walk

    # A slot stands for a worker. While no worker is removed, slots are 0, 1, 2... in order of addition. A
    # removed worker keeps its slot until its last request in flight is released, and has it still if it is
    # added again by then; after that the slot is free, and the next new worker takes the one freed last.
    # Labels are not checked here: pass what check_label returned.
    cdef int place(self, str label) except -1        # slot of the chosen worker, counted in flight there
    cdef int home_slot(self, str label) except -1
    cdef int release_slot(self, int slot) except -1  # 0; takes a slot that place returned
    cdef str worker_name(self, int slot)

    cdef size_t _first_point(self, str label) except? 0
    cdef size_t _first_point_of(self, str label, object exclude, Py_ssize_t* candidates) except? 0
    cdef int _choose(self, size_t point, Py_ssize_t candidates) except -1
    cdef bint _eligible(self, int slot) except -1
    cdef int _known_slot(self, object name, str argument) except -1
    cdef int _order_points(self) except -1
    cdef int _join(self, str name, object weight) except -1
    cdef int _occupy(self, str name) except -1
    cdef int _vacate(self, int slot) except -1
    cdef int _share(self) except -1
