"""LBCH where others count what is in flight, and say so with each request."""

from collections.abc import Mapping

from libcpp.vector cimport vector

from coresched.core.checks cimport check_count, check_label, shown
from coresched.core.ring cimport LoadBoundedRouter


def route_given(LoadBoundedRouter router not None, label, loads):
    """route_given(router, label, loads)\n--\n
    The worker for a request of this label, and the label's home; nothing is counted.

    ``loads``: requests in flight by worker, for each that may take the request. The others are no part of
    this choice, as if they were not on the router's ring, and its own counts do not matter. Raises TypeError
    or ValueError if label is not a label, a load is no count or there are none, LookupError for a worker that
    is not routable.

    >>> router = LoadBoundedRouter(["w0", "w1", "w2"])
    >>> worker, home = route_given(router, "traj-17", {"w0": 4, "w2": 5})
    """
    cdef vector[long long] given
    cdef size_t point
    cdef int slot
    cdef int home = -1
    cdef Py_ssize_t left
    label = check_label(label, "label")
    if not isinstance(loads, Mapping):
        raise TypeError(f"loads must be a mapping from worker to requests in flight, got {shown(loads)}")
    left = len(loads)
    if left == 0:
        raise ValueError("loads must have at least one worker, got none")
    given.assign(router._workers.size(), -1)
    for name, load in loads.items():
        slot = router._known_slot(name, "loads")
        if not router._workers[slot].routable:
            raise LookupError(f"loads must be of the workers {shown(router.workers())}, got {shown(name)}")
        given[slot] = check_count(load, "a load", 0)
    weights = sum([router._weights[name] for name in loads]) if router._weighted else left
    bound = router._alpha * (sum(loads.values()) + 1) / weights
    point = router._first_point(label)
    while left > 0:
        slot = router._points[point].slot
        if given[slot] >= 0:
            name = router.worker_name(slot)
            if given[slot] - router.slack <= (bound * router._weights[name] if router._weighted else bound):
                return name, name if home < 0 else router.worker_name(home)
            if home < 0:
                home = slot
            given[slot] = -1
            left -= 1
        point += 1
        if point == router._points.size():
            point = 0
    return router.worker_name(home), router.worker_name(home)
