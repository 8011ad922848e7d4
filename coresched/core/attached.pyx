"""RP, or residency, on an engine's own list of its own request objects, in place.

An engine's requests cannot be `Waiting`, so the `Waiting` of each is attached to it once, under an attribute.
After that a pass runs no Python code for a request that is not new. It does not even read requests that stand
as the last pass left them: an engine's requests are large and out of the processor's caches by then.
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLong
from cpython.object cimport PyObject
from libcpp.vector cimport vector

from sys import intern

from coresched.core.checks cimport check_count, shown
from coresched.core.prefix cimport LabelTiers, Waiting

cdef extern from "Python.h":
    ctypedef struct PyWeakReference:
        PyObject* wr_object
    object PyWeakref_NewRef(object referent, object callback)
    Py_ssize_t Py_REFCNT(PyObject* counted)
    PyObject* item_of "PyList_GET_ITEM"(PyObject* items, Py_ssize_t place) noexcept


cdef class AttachedOrder:
    """AttachedOrder(policy, attribute, *, rank=None, highest_rank_first=True)\n--\n
    The order of the waiting queue of one engine, by routing-prefix or by residency.

    ``policy`` is the engine's, and is told of admissions, or of the cache, directly. ``attribute`` is where
    each request holds its `Waiting`; an engine's own name must not be taken. ``rank`` names an int attribute by which the engine
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

    cdef readonly LabelTiers policy
    cdef readonly long long passes   # calls of `order`
    cdef readonly long long queries  # calls of `prefix_hit`
    cdef readonly long long changed  # passes that changed the order
    cdef str _attribute
    cdef str _rank
    cdef bint _highest_rank_first
    cdef bint _each_stands_once              # in the list of this pass
    cdef list _left                          # what is attached to the requests, as the last pass left them
    cdef unsigned long long _label_version   # of the label set in that pass

    def __cinit__(
        self, LabelTiers policy not None, attribute, *, rank=None, highest_rank_first=True
    ):
        self.policy = policy
        self._attribute = check_name(attribute, "attribute")
        self._rank = None if rank is None else check_name(rank, "rank")
        self._highest_rank_first = highest_rank_first
        self._left = []

    def order(self, list requests not None, enter, prefix_hit=None):
        """Put the list into the policy's order, in place; full ties keep theirs. Whether that changed the list.

        ``enter(request)`` makes the `Waiting` of a request that has none, or None, under the attribute: once
        in its life, and again if the attribute was deleted and nobody else holds the `Waiting`.
        ``prefix_hit(request)`` returns the cached prompt tokens, an int not below 0, and is called at most
        once in the life of a request, in the first pass that finds its label in the label set. Neither may
        change the list or admit requests to the policy. A request may stand in the list twice, and requests
        may share a `Waiting`, which is then asked once. Residency asks for no hit, so None does.

        If anything raises, the list is as it was and what was learned of the other requests is kept. Raises
        TypeError or ValueError for something else than a `Waiting`, a bad hit or a bad rank, AttributeError
        for a request that lacks the rank or takes no attribute, and RuntimeError if the list or the label set
        was changed by a call.
        """
        cdef list before, waiting, unasked
        cdef bint is_collected
        cdef vector[long long] engine_ranks
        cdef const long long* ranks = NULL
        cdef bint is_changed
        self.passes += 1
        if self._is_as_left(requests):
            return False
        before = requests[:]
        waiting = self._waiting_of(before, enter)
        unasked = self.policy.unasked(waiting)
        is_collected = self._rank is None  # for then no Python code runs between
        if unasked:
            self._ask(before, waiting, unasked, prefix_hit)
            is_collected = is_collected and self.policy.learn()
        if self._rank is not None:
            self._read_ranks(before, engine_ranks)
            ranks = engine_ranks.data()
        check_same(requests, before)  # from here on no Python code runs
        is_changed = self.policy.arrange_items(waiting, requests, before, ranks, is_collected)
        self.changed += is_changed
        self._left = waiting if self._each_stands_once else []  # else `is_attached` could not tell
        self._label_version = self.policy.version
        return is_changed

    cdef bint _is_as_left(self, list requests) noexcept:
        """Whether the last pass left this list and this label set; never so where ranks may have changed."""
        cdef Py_ssize_t place
        if (
            self._rank is not None
            or self._label_version != self.policy.version
            or PyList_GET_SIZE(requests) != PyList_GET_SIZE(self._left)
        ):
            return False
        for place in range(PyList_GET_SIZE(requests)):
            if not is_attached(item_of(<PyObject*>self._left, place), item_of(<PyObject*>requests, place)):
                return False
        return True

    cdef list _waiting_of(self, list requests, enter):
        """What is attached to each request, and entered where nothing is yet."""
        cdef list left = self._left, waiting = []
        cdef Py_ssize_t place = 0
        cdef object attached
        cdef int number = self.passes & 0x7FFFFFFF  # marks what was met in this pass
        self._each_stands_once = True
        for request in requests:
            # As long as requests have only left the list since the last pass, they need not be read.
            while place < len(left) and not is_attached(
                item_of(<PyObject*>left, place), <PyObject*>request
            ):
                place += 1
            if place < len(left):
                attached = left[place]
                (<Waiting>attached).index = number
                waiting.append(attached)
                place += 1
                continue
            attached = getattr(request, self._attribute, None)
            if attached is None:
                attached = enter(request)
                if not isinstance(attached, Waiting):
                    raise TypeError(f"enter(request) must return a Waiting, got {shown(attached)}")
                setattr(request, self._attribute, attached)
                try:
                    (<Waiting>attached).attached_to = PyWeakref_NewRef(request, None)
                except TypeError:
                    pass  # its class allows none: such a request is read in every pass
            elif not isinstance(attached, Waiting):
                raise TypeError(
                    f"{self._attribute} of a request must be the Waiting that enter made of it, "
                    f"got {shown(attached)}"
                )
            if (<Waiting>attached).index == number:
                self._each_stands_once = False
            (<Waiting>attached).index = number
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


cdef bint is_attached(PyObject* waiting, PyObject* request) noexcept:
    """Whether this `Waiting` is surely still the one under the attribute, without a look at the request."""
    # A request that has ended is no longer what the reference refers to, though another may have its address.
    # One whose attribute was deleted left the reference from the list alone.
    cdef PyObject* reference = <PyObject*>(<Waiting>waiting).attached_to
    return (
        reference != <PyObject*>None
        and (<PyWeakReference*>reference).wr_object == request
        and Py_REFCNT(waiting) > 1
    )


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
