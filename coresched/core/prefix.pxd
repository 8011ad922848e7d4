from libcpp.vector cimport vector


cdef extern from *:
    """
    struct RoutingPrefixKey {
        long long engine_rank; // 0, or what the engine sorts by before the tiers
        long long rank;        // not above 0 in tier 0 (-hit for RP), 1 in tier 1
        double queued_at;
        PyObject* item;        // borrowed from the list being sorted
        bool operator<(const RoutingPrefixKey& other) const {
            if (engine_rank != other.engine_rank) return engine_rank < other.engine_rank;
            return rank != other.rank ? rank < other.rank : queued_at < other.queued_at;
        }
    };
    """
    cdef cppclass RoutingPrefixKey:
        long long engine_rank
        long long rank
        double queued_at
        void* item
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
    cdef vector[RoutingPrefixKey] _keys  # scratch, kept to spare the allocation

    # An `order` is unasked, then the caller sets tokens_hit >= 0 of each request returned, then arrange.
    # All check that `waiting` holds only Waiting, and change nothing if not.
    cdef list unasked(self, list waiting)            # requests in tier 0 still to ask, in list order
    cdef bint arrange(self, list waiting) except -1  # sorts the list in place; whether that changed it
    # The same for `items`, which the caller holds at the same places; `waiting` stays as it is. Ascending
    # engine_ranks, one an item, come before the tiers; NULL for none. Runs no Python code.
    cdef bint arrange_items(self, list waiting, list items, const long long* engine_ranks) except -1

    cdef Py_ssize_t _collect(self, list waiting) except -1
    cdef int _collect_asked(self, list waiting) except -1
    cdef long long _rank(self, Waiting request) noexcept  # in tier 0, not above 0; above: a hit is to be asked
    cdef int _stamp(self, Waiting request) except -1
    cdef bint _settle(self, list items) noexcept


cdef class RoutingPrefixPolicy(LabelTiers):
    cdef readonly long long label_capacity
    cpdef admitted(self, label)


cdef unsigned long long next_version() noexcept
