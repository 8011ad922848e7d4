"""LBCH: load-bounded consistent hashing, the choice of a worker for each inference request.

Worker w is eligible iff ``L(w) <= alpha (L_tot + 1) weight(w) / sum(weight) + slack``, L being requests in
flight and the +1 the request now placed; for W equal weights ``(L(w) - slack) W <= alpha (L_tot + 1)``. Home, the first
worker clockwise from the label's hash, takes the request if eligible; else the first eligible of its
successors, each distinct worker once; else home.
"""

from collections.abc import Mapping
from fractions import Fraction

from mmh3 import hash64

from coresched.core.checks cimport (
    check_count,
    check_finite,
    check_label,
    check_positive,
    check_several,
    check_slack,
    shown,
)
from coresched.core.shares import LARGEST_WEIGHT

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef extern from "murmur3.h" namespace "coresched":
    unsigned long long murmur3(const char* text, size_t size, unsigned long long seed) noexcept

# Both numbers are part of the routing: changing one moves every label.
cdef object POINT_SEED = 0
cdef unsigned long long LABEL_SEED = 1

cdef object MOST_VIRTUAL_NODES = 65536
cdef object LARGEST_TERM = (1 << 63) - 1


cdef unsigned long long point_position(str text) except? 0:
    # The 64-bit variant on every machine. Unsigned by the cast: mmh3 5.3 ignores a positional `signed`.
    return <unsigned long long><long long>(<tuple>hash64(text, POINT_SEED, True))[0]


cdef inline unsigned long long label_position(str label) except? 0:
    # The same hash; a call of mmh3 would take longer than all else that a route does.
    cdef Py_ssize_t size = 0
    cdef const char* text = PyUnicode_AsUTF8AndSize(label, &size)
    return murmur3(text, size, LABEL_SEED)


cdef object as_written(double number):
    """The decimal number that the user wrote, not the double nearest to it: 0.1 is 1/10."""
    return Fraction(repr(number))


cdef object check_weight(object weight, str name):
    cdef double number = check_positive(weight, name)
    if number > LARGEST_WEIGHT:
        raise ValueError(f"{name} must be at most {LARGEST_WEIGHT}, got {shown(weight)}")
    return as_written(number)


cdef class LoadBoundedRouter:
    """LoadBoundedRouter(workers, load_bound=1.25, virtual_nodes=128, slack=0)\n--\n
    Routes each request of a trajectory to one home worker while that worker's load allows.

    ``workers``: names, or a mapping from name to weight (relative serving capacity, above 0, at most 1000).
    ``load_bound``: alpha, finite, at least 1. ``virtual_nodes``: points on the ring per unit of weight, 1
    to 65536; a worker has ``max(1, round(virtual_nodes * weight))``. alpha and the weights are read as the
    decimal numbers they were written as and compared exactly. ``slack``: requests, 0 to 1000000, that a worker
    of any weight may have beyond alpha's share, for loads that are too few or too local to compare.

    Point i of a worker lies at the first 64 bits of MurmurHash3_x64_128 of ``f"{worker}#{i}"`` with seed 0,
    a label at those of its own text with seed 1. Clockwise is ascending; a point exactly at the label is the
    first. Points at one position are in order of the worker's name, so that machine, process and order of
    addition do not matter.

    A route takes one hash, one binary search and a short walk; the first one after workers joined also puts
    their points in order among the others. Not for several threads at once.
    Raises TypeError or ValueError for a bad argument, and ValueError for a worker named twice.

    >>> ring = LoadBoundedRouter(["w0", "w1"], load_bound=1.25)
    >>> worker = ring.route("traj-17")
    >>> worker == ring.home("traj-17")
    True
    >>> ring.release(worker)
    """

    def __cinit__(self, workers, load_bound=1.25, virtual_nodes=128, slack=0):
        self.load_bound = check_finite(load_bound, "load_bound")
        if self.load_bound < 1.0:
            raise ValueError(f"load_bound must be at least 1, got {shown(load_bound)}")
        self.virtual_nodes = check_count(virtual_nodes, "virtual_nodes", 1)
        if self.virtual_nodes > MOST_VIRTUAL_NODES:
            raise ValueError(f"virtual_nodes must be at most {MOST_VIRTUAL_NODES}, got {virtual_nodes}")
        self.slack = check_slack(slack)
        self._alpha = as_written(self.load_bound)
        self._slots = {}
        self._weights = {}
        self._names = []
        self._shares = []
        self._free = []
        weighted = workers.items() if isinstance(workers, Mapping) else [
            (name, 1.0) for name in check_several(workers, "workers", "names or a mapping to weights")
        ]
        for name, weight in weighted:
            self._join(check_label(name, "worker"), check_weight(weight, f"weight of {shown(name)}"))
        self._share()

    def route(self, label, exclude=()):
        """The worker for a request of this label, now counted in flight there until ``release``.

        ``exclude``: workers not to use for this one request, such as the one that just failed it. The bound
        stays that of all routable workers; if no other is eligible, the first other clockwise takes it.
        Raises TypeError or ValueError if label is not a label, LookupError if exclude names an unknown worker
        or leaves none; nothing is counted then.
        """
        cdef Py_ssize_t candidates = 0
        cdef size_t point
        label = check_label(label, "label")
        if type(exclude) is tuple and not exclude:
            return self.worker_name(self.place(label))
        point = self._first_point_of(label, exclude, &candidates)
        return self.worker_name(self._choose(point, candidates))

    def order(self, label, exclude=()):
        """The workers in the order in which to try them for a request of this label; nothing is counted.

        First the eligible ones clockwise from the label, then the others clockwise, all but ``exclude``. The
        first is the one that ``route`` would choose, and after ``hold`` of it all is as after ``route``.
        Raises as ``route`` does.
        """
        cdef int slot
        cdef Py_ssize_t candidates = 0
        cdef size_t point
        label = check_label(label, "label")
        point = self._first_point_of(label, exclude, &candidates)
        eligible = []
        others = []
        while candidates > 0:
            slot = self._points[point].slot
            if self._workers[slot].met != self._walk:
                self._workers[slot].met = self._walk
                (eligible if self._eligible(slot) else others).append(self.worker_name(slot))
                candidates -= 1
            point += 1
            if point == self._points.size():
                point = 0
        return eligible + others

    def release(self, worker):
        """End one request in flight on the worker; exactly once for each ``route``, however it ended.

        A removed worker counts as known until its last request in flight is released.
        Raises LookupError for an unknown worker, RuntimeError for one without requests in flight.
        """
        self.release_slot(self._known_slot(worker, "worker"))

    def hold(self, worker):
        """Count one request in flight on the worker without a choice: one that was placed in an earlier life.

        To be ended by ``release``. Raises LookupError for an unknown worker.
        """
        cdef int slot = self._known_slot(worker, "worker")
        self._workers[slot].in_flight += 1
        if self._workers[slot].routable:
            self._total += 1

    def home(self, label):
        """The label's home worker, whatever its load; nothing is counted. Raises as ``route`` does."""
        return self.worker_name(self.home_slot(check_label(label, "label")))

    def settle(self, label, worker):
        """Nothing: where a label was served last does not matter here, as it does to StickyBoundedRouter."""

    def forget(self, label):
        """Nothing: a ring keeps no labels, unlike StickyBoundedRouter."""

    def loads(self):
        """Requests in flight by routable worker, in order of addition."""
        return {name: self._workers[<int>self._slots[name]].in_flight for name in self._weights}

    def workers(self):
        """Names of the routable workers, in order of addition."""
        return list(self._weights)

    def add_worker(self, name, weight=1.0):
        """Make a worker routable; only labels whose home it becomes get another home.

        One that was removed with requests in flight resumes with those not yet released.
        Raises TypeError or ValueError for a bad name or weight, ValueError if the worker is routable already.
        """
        self._join(check_label(name, "name"), check_weight(weight, "weight"))
        self._share()

    def remove_worker(self, name):
        """Take a worker off the ring and out of the totals; its requests in flight may still be released.

        Only labels whose home it was get another home. Raises LookupError if the worker is not routable.
        """
        cdef RingPoint point
        cdef size_t kept = 0
        cdef int slot
        if name not in self._weights:
            raise LookupError(f"name must be one of the workers {shown(self.workers())}, got {shown(name)}")
        slot = self._slots[name]
        self._order_points()
        for point in self._points:
            if point.slot != slot:
                self._points[kept] = point
                kept += 1
        self._points.resize(kept)
        self._ordered = kept
        del self._weights[name]
        self._workers[slot].routable = False
        self._total -= self._workers[slot].in_flight
        if self._workers[slot].in_flight == 0:
            self._vacate(slot)
        self._share()

    cdef int place(self, str label) except -1:
        cdef size_t point = self._first_point(label)
        self._walk += 1
        return self._choose(point, len(self._weights))

    cdef int home_slot(self, str label) except -1:
        return self._points[self._first_point(label)].slot

    cdef int release_slot(self, int slot) except -1:
        cdef RingWorker* worker = &self._workers[slot]
        if worker.in_flight == 0:
            raise RuntimeError(f"worker {self._names[slot]!r} has no request in flight to release")
        worker.in_flight -= 1
        if worker.routable:
            self._total -= 1
        elif worker.in_flight == 0:
            self._vacate(slot)
        return 0

    cdef str worker_name(self, int slot):
        return <str>self._names[slot]

    cdef size_t _first_point(self, str label) except? 0:
        """Index of the first point clockwise from the label."""
        cdef unsigned long long position
        cdef size_t low = 0, high = self._points.size(), middle
        if high == 0:
            raise LookupError(f"a worker must be added before {shown(label)} can be routed, there is none")
        if self._ordered < high:
            self._order_points()
        position = label_position(label)
        while low < high:
            middle = (low + high) >> 1
            if self._points[middle].position < position:
                low = middle + 1
            else:
                high = middle
        return low if low < self._points.size() else 0

    cdef size_t _first_point_of(self, str label, object exclude, Py_ssize_t* candidates) except? 0:
        """Begin a walk from the label in which the excluded count as met; sets how many workers are left."""
        cdef int slot
        cdef size_t point
        names = check_several(exclude, "exclude", "a collection of worker names")
        excluded = {self._known_slot(name, "exclude") for name in names}
        point = self._first_point(label)
        self._walk += 1
        for slot in excluded:
            self._workers[slot].met = self._walk
        candidates[0] = 0
        for slot in range(<int>self._workers.size()):
            candidates[0] += self._workers[slot].routable and self._workers[slot].met != self._walk
        if candidates[0] == 0:
            raise LookupError(f"exclude must leave one of the workers, got all of {shown(self.workers())}")
        return point

    cdef int _choose(self, size_t point, Py_ssize_t candidates) except -1:
        """Count and return the first eligible of the candidates not met in this walk; else the first met."""
        cdef int first = -1
        cdef int slot
        while candidates > 0:
            slot = self._points[point].slot
            if self._workers[slot].met != self._walk:
                self._workers[slot].met = self._walk
                if self._eligible(slot):
                    first = slot
                    break
                if first < 0:
                    first = slot
                candidates -= 1
            point += 1
            if point == self._points.size():
                point = 0
        self._workers[first].in_flight += 1
        self._total += 1
        return first

    cdef bint _eligible(self, int slot) except -1:
        if self._workers[slot].p > 0:
            return ring_within_bound(self._workers[slot], self._total, self.slack)
        share = self._shares[slot]
        above = self._workers[slot].in_flight - self.slack
        return above * share.denominator <= share.numerator * (self._total + 1)

    cdef int _known_slot(self, object name, str argument) except -1:
        slot = self._slots.get(name)
        if slot is None:
            raise LookupError(
                f"{argument} must be among the workers {shown(list(self._slots))}, got {shown(name)}"
            )
        return slot

    cdef int _join(self, str name, object weight) except -1:
        """Add a worker and its points, in no order yet; the shares are then out of date."""
        cdef vector[RingPoint] points
        cdef RingPoint point
        if name in self._weights:
            raise ValueError(f"a worker must be added once only, got {name!r} again")
        positions = [point_position(f"{name}#{i}") for i in range(max(1, round(self.virtual_nodes * weight)))]
        points.reserve(len(positions))
        point.slot = self._occupy(name)
        for position in positions:
            point.position = position
            points.push_back(point)
        self._points.insert(self._points.end(), points.begin(), points.end())
        self._weights[name] = weight
        self._workers[point.slot].routable = True
        self._total += self._workers[point.slot].in_flight
        return 0

    cdef int _order_points(self) except -1:
        """Put the points of workers that joined among the others."""
        cdef size_t first = 0, end, point
        ring_merge(self._points, self._ordered)
        self._ordered = self._points.size()
        while first < self._ordered:
            end = first + 1
            while end < self._ordered and self._points[end].position == self._points[first].position:
                end += 1
            if end - first > 1:
                slots = [self._points[point].slot for point in range(first, end)]
                slots.sort(key=self._names.__getitem__)
                for point in range(first, end):
                    self._points[point].slot = slots[point - first]
            first = end
        return 0

    cdef int _occupy(self, str name) except -1:
        cdef RingWorker fresh
        slot = self._slots.get(name)
        if slot is not None:
            return slot
        fresh.in_flight = 0
        fresh.routable = False
        fresh.p = fresh.q = 0
        fresh.met = 0
        if self._free:
            slot = self._free.pop()
            self._workers[<int>slot] = fresh
            self._names[slot] = name
        else:
            slot = len(self._names)
            self._workers.push_back(fresh)
            self._names.append(name)
            self._shares.append(None)
        self._slots[name] = slot
        return slot

    cdef int _vacate(self, int slot) except -1:
        del self._slots[self._names[slot]]
        self._names[slot] = None
        self._shares[slot] = None
        self._free.append(slot)
        return 0

    cdef int _share(self) except -1:
        """Set p / q = alpha weight / sum(weight) of each worker: eligible iff (L - slack) q <= p (L_tot + 1)."""
        cdef int slot
        total = sum(self._weights.values())
        shares = {}
        for name, weight in self._weights.items():
            share = shares.get(weight)
            if share is None:
                share = shares[weight] = self._alpha * weight / total
            slot = self._slots[name]
            self._shares[slot] = share
            if share.numerator <= LARGEST_TERM and share.denominator <= LARGEST_TERM:
                self._workers[slot].p = share.numerator
                self._workers[slot].q = share.denominator
            else:
                self._workers[slot].p = 0
        self._weighted = len(shares) > 1
        return 0
