from libcpp.vector cimport vector


cdef extern from *:
    """
    struct RoutingPrefixKey {
        long long engine_rank; // 0, or what the engine sorts by before the tiers
        long long rank;        // not above 0 in tier 0 (-hit for RP), 1 in tier 1
        double queued_at;
        PyObject* item;        // borrowed from the list being sorted
        size_t place;          // in that list: no two keys are equal, and ties keep their order
        bool operator<(const RoutingPrefixKey& other) const {
            if (engine_rank != other.engine_rank) return engine_rank < other.engine_rank;
            if (rank != other.rank) return rank < other.rank;
            return queued_at != other.queued_at ? queued_at < other.queued_at : place < other.place;
        }
    };
    """
    cdef cppclass RoutingPrefixKey:
        long long engine_rank
        long long rank
        double queued_at
        void* item
        size_t place
        bint operator<(const RoutingPrefixKey&)


cdef class Waiting:
    cdef readonly str id
    cdef readonly object label       # None or a valid label
    cdef readonly double queued_at
    cdef long long tokens_hit        # -1: not asked yet
    cdef int index                   # free for a compiled caller; 0 at first
    cdef object attached_to          # a weak reference to the engine's own request, of AttachedOrder; or None
    cdef unsigned long long _stamp   # the membership version for which _member holds
    cdef bint _member                # the label is in the label set: tier 0


cdef class LabelTiers:
    cdef object _labels                # holds the labels of tier 0; keeps an order if the policy needs one
    cdef unsigned long long version    # changes when a label enters or leaves; never equal for two policies
    cdef vector[RoutingPrefixKey] _keys  # scratch, kept to spare the allocation, as are the others
    cdef vector[RoutingPrefixKey] _kept, _dropped
    cdef vector[size_t] _unasked_places  # of the last `unasked`
    cdef unsigned long long _collected, _unasked_collected  # collections so far, and then
    cdef unsigned long long _unasked_version

    # An `order` is unasked, then the caller sets tokens_hit >= 0 of each request returned, then arrange.
    # All check that `waiting` holds only Waiting, and change nothing if not.
    cdef list unasked(self, list waiting)            # requests in tier 0 still to ask, in list order
    # After that, whether the keys are as if collected anew: not if somebody else ordered, or labels moved.
    cdef bint learn(self) noexcept
    cdef bint arrange(self, list waiting) except -1  # sorts the list in place; whether that changed it
    # The same for `items` too, which the caller holds at the same places, and in `before` as they are now.
    # Ascending engine_ranks, one an item, come before the tiers; NULL for none. Runs no Python code. Keys that
    # were collected from `waiting` just before need not be so again.
    cdef bint arrange_items(
        self, list waiting, list items, list before, const long long* engine_ranks, bint is_collected
    ) except -1

    cdef Py_ssize_t _collect(self, list waiting) except -1
    cdef int _collect_asked(self, list waiting) except -1
    cdef long long _rank(self, Waiting request) noexcept  # in tier 0, not above 0; above: a hit is to be asked
    cdef int _stamp(self, Waiting request) except -1
    cdef bint _settle(self, list items) noexcept
    cdef bint _sort(self) noexcept


cdef class RoutingPrefixPolicy(LabelTiers):
    cdef readonly long long label_capacity
    cpdef admitted(self, label)


cdef unsigned long long next_version() noexcept
