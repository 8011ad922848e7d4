"""RP on an engine's own list of its own request objects, in place.

An engine's requests cannot be `Waiting`, so the `Waiting` of each is attached to it once, under an attribute.
After that a pass is attribute reads and comparisons: no Python code, no call a request.
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLong
from libcpp.vector cimport vector

from sys import intern

from coresched.core.checks cimport check_count, shown
from coresched.core.prefix cimport RoutingPrefixPolicy, Waiting


cdef class AttachedOrder:
    """AttachedOrder(policy, attribute, *, rank=None, highest_rank_first=True)\n--\n
    The routing-prefix order of the waiting queue of one engine.

    ``policy`` is the engine's, and is told of admissions directly. ``attribute`` is where each request holds
    its `Waiting`; an engine's own name must not be taken. ``rank`` names an int attribute by which the engine
    sorts before everything else, highest first or lowest first; it is read in every pass. None: by nothing.
    Not for several threads at once. Raises TypeError or ValueError for bad arguments.

    >>> from coresched.core import AttachedOrder, RoutingPrefixPolicy, Waiting
    >>> class Request:
    ...     def __init__(self, label, arrived_at):
    ...         self.label, self.arrived_at = label, arrived_at
    >>> policy = RoutingPrefixPolicy(label_capacity=98)
    >>> policy.admitted("warm")
    >>> order = AttachedOrder(policy, "_waiting")
    >>> queue = [Request("cold", 1.0), Request("warm", 2.0)]
    >>> enter = lambda request: Waiting("", request.label, request.arrived_at)
    >>> order.order(queue, enter, prefix_hit=lambda request: 512)
    True
    >>> [request.label for request in queue]
    ['warm', 'cold']
    """

    cdef readonly RoutingPrefixPolicy policy
    cdef readonly long long passes   # calls of `order`
    cdef readonly long long queries  # calls of `prefix_hit`
    cdef readonly long long changed  # passes that changed the order
    cdef str _attribute
    cdef str _rank
    cdef bint _highest_rank_first

    def __cinit__(
        self, RoutingPrefixPolicy policy not None, attribute, *, rank=None, highest_rank_first=True
    ):
        self.policy = policy
        self._attribute = check_name(attribute, "attribute")
        self._rank = None if rank is None else check_name(rank, "rank")
        self._highest_rank_first = highest_rank_first

    def order(self, list requests not None, enter, prefix_hit):
        """Put the list into RP order, in place; full ties keep their order. Whether that changed the list.

        ``enter(request)`` makes the `Waiting` of a request that has none, or None, under the attribute: once
        in its life. ``prefix_hit(request)`` returns the cached prompt tokens, an int not below 0, and is
        called at most once in the life of a request, in the first pass that finds its label in the label set.
        Neither may change the list or admit requests to the policy. A request may stand in the list twice,
        and requests may share a `Waiting`, which is then asked once.

        If anything raises, the list is as it was and what was learned of the other requests is kept. Raises
        TypeError or ValueError for something else than a `Waiting`, a bad hit or a bad rank, AttributeError
        for a request that lacks the rank or takes no attribute, and RuntimeError if the list or the label set
        was changed by a call.
        """
        cdef list before = requests[:]
        cdef list waiting, unasked
        cdef vector[long long] engine_ranks
        cdef const long long* ranks = NULL
        self.passes += 1
        waiting = self._waiting_of(before, enter)
        unasked = self.policy.unasked(waiting)
        if unasked:
            self._ask(before, waiting, unasked, prefix_hit)
        if self._rank is not None:
            self._read_ranks(before, engine_ranks)
            ranks = engine_ranks.data()
        check_same(requests, before)  # from here on no Python code runs
        if not self.policy.arrange_items(waiting, requests, ranks):
            return False
        self.changed += 1
        return True

    cdef list _waiting_of(self, list requests, enter):
        cdef list waiting = []
        cdef object attached
        for request in requests:
            attached = getattr(request, self._attribute, None)
            if attached is None:
                attached = enter(request)
                if not isinstance(attached, Waiting):
                    raise TypeError(f"enter(request) must return a Waiting, got {shown(attached)}")
                setattr(request, self._attribute, attached)
            elif not isinstance(attached, Waiting):
                raise TypeError(
                    f"{self._attribute} of a request must be the Waiting that enter made of it, "
                    f"got {shown(attached)}"
                )
            waiting.append(attached)
        return waiting

    cdef int _read_ranks(self, list requests, vector[long long]& engine_ranks) except -1:
        cdef long long rank
        engine_ranks.reserve(len(requests))
        for request in requests:
            rank = rank_of(getattr(request, self._rank), self._rank)
            engine_ranks.push_back(~rank if self._highest_rank_first else rank)  # -rank may overflow
        return 0

    cdef int _ask(self, list requests, list waiting, list unasked, prefix_hit) except -1:
        """``unasked`` is some of ``waiting``, in its order."""
        cdef Py_ssize_t place = 0
        cdef Waiting one
        for one in unasked:
            while waiting[place] is not one:
                place += 1
            if one.tokens_hit < 0:  # else it stands twice in the list, or prefix_hit ordered it itself
                self.queries += 1
                one.tokens_hit = check_count(prefix_hit(requests[place]), "prefix_hit(request)", 0)
            place += 1
        return 0


cdef str check_name(object value, str argument):
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str, got {shown(value)} of type {type(value).__name__}")
    if not value.isidentifier():
        raise ValueError(f"{argument} must be the name of an attribute, got {shown(value)}")
    return intern(str(value))


cdef long long rank_of(object value, str name) except? -1:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(
            f"{name} of a request must be an int, got {shown(value)} of type {type(value).__name__}"
        )
    try:
        return PyLong_AsLongLong(value)
    except OverflowError:
        raise ValueError(
            f"{name} of a request must be from -2**63 to 2**63 - 1, got {shown(value)}"
        ) from None


cdef int check_same(list requests, list before) except -1:
    cdef Py_ssize_t place
    cdef bint same = PyList_GET_SIZE(requests) == PyList_GET_SIZE(before)
    if same:
        for place in range(PyList_GET_SIZE(before)):
            same &= <void*>PyList_GET_ITEM(requests, place) == <void*>PyList_GET_ITEM(before, place)
    if not same:
        raise RuntimeError(
            "requests must not change while they are ordered; did enter or prefix_hit change the list?"
        )
    return 0
