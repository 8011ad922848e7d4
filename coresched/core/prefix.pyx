"""RP: routing-prefix scheduling, the order of the waiting queue inside one worker.

Requests whose trajectory label is in the label set A come first, longest recorded prefix hit first
(``key = (0, -l, t)``); the others follow in queue-entry order (``key = (1, 0, t)``) and are never asked for
a hit. A is least-recently-used and changes only when requests are admitted.
"""

from cpython.object cimport PyObject
from libcpp.algorithm cimport is_sorted, merge, sort

from collections import OrderedDict

from coresched.core.checks cimport check_count, check_finite, check_label, shown

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(PyObject* items, Py_ssize_t place) noexcept
    void PyList_SET_ITEM(PyObject* items, Py_ssize_t place, PyObject* item) noexcept

# One counter for all policies: a stamp tells both the policy and its version, and 0 is no policy's.
cdef unsigned long long versions = 0


cdef unsigned long long next_version() noexcept:
    global versions
    versions += 1
    return versions


cdef class Waiting:
    """Waiting(id, label, queued_at)\n--\n
    One inference request in a worker's waiting queue, made once when it enters.

    ``id`` is a str the scheduler does not read. ``label`` is the trajectory label or None. ``queued_at`` is
    the queue-entry time in seconds on any clock, finite. Raises TypeError or ValueError for anything else.
    """

    def __cinit__(self, id, label, queued_at):
        if type(id) is not str:
            raise TypeError(f"id must be a str, got {shown(id)} of type {type(id).__name__}")
        self.id = id
        self.label = None if label is None else check_label(label, "label")
        self.queued_at = check_finite(queued_at, "queued_at")
        self.tokens_hit = -1

    @property
    def hit(self):
        """The recorded prefix hit in tokens; None until it was asked."""
        return None if self.tokens_hit < 0 else self.tokens_hit

    def __repr__(self):
        return f"Waiting({self.id!r}, {self.label!r}, queued_at={self.queued_at!r}, hit={self.hit!r})"


cdef class LabelTiers:
    """The order of a waiting queue in two tiers: labels that the policy holds come first.

    What RP and its kin have in common; each says which labels it holds and how it ranks them. Equal ranks, and
    all of tier 1, are in queue-entry order. A pass over a queue that is in order already costs O(n), without a
    look-up when no label entered or left since the last pass.
    """

    def __cinit__(self):
        self.version = next_version()

    def __contains__(self, label):
        return label in self._labels

    cdef list unasked(self, list waiting):
        cdef list asked = []
        cdef Py_ssize_t place
        cdef Waiting request
        self._unasked_places.clear()
        if self._collect(waiting):
            for place in range(len(waiting)):
                request = <Waiting>waiting[place]
                if request.tokens_hit < 0 and request._member:
                    asked.append(request)
                    self._unasked_places.push_back(place)
        self._unasked_collected, self._unasked_version = self._collected, self.version
        return asked

    cdef bint learn(self) noexcept:
        cdef size_t place
        if self._unasked_collected != self._collected or self._unasked_version != self.version:
            return False
        for place in self._unasked_places:
            self._keys[place].rank = self._rank(<Waiting>self._keys[place].item)
        return True

    cdef bint arrange(self, list waiting) except -1:
        self._collect_asked(waiting)
        return self._settle(waiting)

    cdef bint arrange_items(
        self, list waiting, list items, list before, const long long* engine_ranks, bint is_collected
    ) except -1:
        cdef Py_ssize_t place
        cdef size_t from_place
        if not is_collected:
            self._collect_asked(waiting)
        if engine_ranks != NULL:
            for place in range(len(waiting)):
                self._keys[place].engine_rank = engine_ranks[place]
        if not self._settle(waiting):
            return False
        for place in range(len(waiting)):
            from_place = self._keys[place].place
            PyList_SET_ITEM(<PyObject*>items, place, PyList_GET_ITEM(<PyObject*>before, from_place))
        return True

    # From _collect to _settle no Python code runs, so the list keeps alive what the keys borrow.

    cdef int _collect_asked(self, list waiting) except -1:
        if self._collect(waiting):
            raise RuntimeError(
                "every waiting request whose label is in the label set must have its prefix hit by now; "
                "was a label admitted while hits were being asked?"
            )
        return 0

    cdef Py_ssize_t _collect(self, list waiting) except -1:
        """Stamp the requests and compute their keys; how many are in tier 0 and not asked yet."""
        cdef Py_ssize_t place, unasked = 0
        cdef PyObject* item
        cdef RoutingPrefixKey* key
        self._collected += 1
        self._keys.resize(len(waiting))
        key = self._keys.data()
        for place in range(len(waiting)):
            item = PyList_GET_ITEM(<PyObject*>waiting, place)
            if not isinstance(<object>item, Waiting):
                raise TypeError(f"waiting must hold Waiting objects only, got {shown(<object>item)}")
            if (<Waiting>item)._stamp != self.version:
                self._stamp(<Waiting>item)
            if not (<Waiting>item)._member:
                key.rank = 1
            else:
                key.rank = self._rank(<Waiting>item)
                if key.rank > 0:
                    unasked += 1
            key.queued_at = (<Waiting>item).queued_at
            key.engine_rank = 0
            key.item = item
            key.place = place
            key += 1
        return unasked

    cdef long long _rank(self, Waiting request) noexcept:
        return -request.tokens_hit

    cdef int _stamp(self, Waiting request) except -1:
        request._member = request.label is not None and request.label in self._labels
        request._stamp = self.version
        return 0

    cdef bint _settle(self, list items) noexcept:
        """Put the list into the order of its keys; whether that changed it."""
        cdef Py_ssize_t place
        if not self._sort():
            return False
        for place in range(<Py_ssize_t>self._keys.size()):
            PyList_SET_ITEM(<PyObject*>items, place, <PyObject*>self._keys[place].item)
        return True


    cdef bint _sort(self) noexcept:
        """Sort the keys; whether that moved one. O(n + k log k) where k requests are out of place.

        Most passes find a few that came, or whose label did. What is out of place is taken out, sorted alone,
        and merged with the rest.
        """
        cdef size_t place, size = self._keys.size()
        if is_sorted(self._keys.begin(), self._keys.end()):
            return False
        self._kept.clear()
        self._dropped.clear()
        for place in range(size):
            if self._kept.empty() or self._kept.back() < self._keys[place]:
                self._kept.push_back(self._keys[place])
            elif self._kept.size() == 1 or self._kept[self._kept.size() - 2] < self._keys[place]:
                self._dropped.push_back(self._kept.back())  # it stood too far in front
                self._kept[self._kept.size() - 1] = self._keys[place]
            else:
                self._dropped.push_back(self._keys[place])
            if self._dropped.size() > size // 4 + 1:
                sort(self._keys.begin(), self._keys.end())
                return True
        sort(self._dropped.begin(), self._dropped.end())
        merge(
            self._kept.begin(), self._kept.end(), self._dropped.begin(), self._dropped.end(), self._keys.begin()
        )
        return True


cdef class RoutingPrefixPolicy(LabelTiers):
    """RoutingPrefixPolicy(label_capacity)\n--\n
    The routing-prefix order of one worker, with its least-recently-used label set.

    ``label_capacity`` (C_A, at least 1) is how many trajectories the worker's cache is expected to keep.
    A pass over a queue that is in order already costs O(n), without a dict look-up when no label entered or
    left since the last pass. Not for several threads at once.

    >>> policy = RoutingPrefixPolicy(label_capacity=98)
    >>> policy.admitted("warm")
    >>> waiting = [Waiting("r1", "cold", 1.0), Waiting("r2", "warm", 2.0)]
    >>> [request.id for request in policy.order(waiting, prefix_hit=lambda request: 512)]
    ['r2', 'r1']
    """

    def __cinit__(self, label_capacity):
        self.label_capacity = check_count(label_capacity, "label_capacity", 1)
        self._labels = OrderedDict()

    def order(self, waiting, prefix_hit):
        """A new list of the same requests, best first; full ties keep their present order.

        ``prefix_hit(request)`` returns the cached prompt tokens, an int not below 0. It is called at most
        once in the life of a request, in the first pass that finds its label in the label set, and must not
        admit requests to this policy. If it raises, that request counts as not asked and the others keep
        what was learned. Raises TypeError or ValueError for bad arguments or a bad hit.
        """
        cdef list ordered = list(waiting)
        cdef Waiting request
        if not self._collect(ordered):
            self._settle(ordered)
            return ordered
        for request in self.unasked(ordered):
            if request.tokens_hit < 0:  # else it stands twice in the list, or prefix_hit ordered it itself
                request.tokens_hit = check_count(prefix_hit(request), "prefix_hit(request)", 0)
        self.arrange(ordered)
        return ordered

    cpdef admitted(self, label):
        """Touch the label of an admitted request; call in admission order. None is ignored.

        The oldest label leaves when the set grows over ``label_capacity``. O(1).
        Raises TypeError or ValueError if it is not a label.
        """
        if label is None:
            return
        label = check_label(label, "label")
        if label in self._labels:
            self._labels.move_to_end(label)
            return
        self._labels[label] = None
        if len(self._labels) > self.label_capacity:
            self._labels.popitem(last=False)
        self.version = next_version()

    def forget(self, label):
        """The trajectory has ended, so its label leaves the set, if it was there. O(1)."""
        if label in self._labels:
            del self._labels[label]
            self.version = next_version()

    def labels(self):
        """The labels in the set, the oldest touch first."""
        return list(self._labels)
