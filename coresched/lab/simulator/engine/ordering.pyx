# cython: boundscheck=False, wraparound=False
"""The orders of longest-prefix-match and dfs-weight over a waiting queue whose prefix hits are known."""

from libcpp.algorithm cimport sort
from libcpp.vector cimport vector

from coresched.core.prefix cimport Waiting
from coresched.lab.simulator.engine.columns cimport Columns

cdef struct Rank:
    long long first, second
    Py_ssize_t place


cdef bint before(const Rank& a, const Rank& b) noexcept:
    if a.first != b.first:
        return a.first < b.first
    if a.second != b.second:
        return a.second < b.second
    return a.place < b.place


cdef int arrange_by_hits(list waiting, Columns columns, const vector[long long]& hits, bint depth_first) except -1:
    """Sort in place; requests that rank equal keep their order.

    Longest prefix match ranks by hit, longest first. dfs-weight ranks the prefix-tree branch (group) with most
    waiting requests first and unmatched requests last; trajectories of one group are siblings of equal weight.
    """
    cdef Py_ssize_t count = len(waiting), place
    cdef vector[Rank] ranks
    cdef vector[long long] weight, first
    cdef Rank rank
    cdef long long group
    cdef list ordered
    if depth_first:
        weight.assign(columns.groups, 0)
        first.assign(columns.groups, -1)
        for place in range(count):
            if hits[place] > 0:
                group = columns.group[(<Waiting>waiting[place]).index]
                weight[group] += 1
                if first[group] < 0:
                    first[group] = place
    ranks.reserve(count)
    for place in range(count):
        rank.place = place
        rank.first = -hits[place]
        rank.second = 0
        if depth_first:
            if hits[place] > 0:
                group = columns.group[(<Waiting>waiting[place]).index]
                rank.first = -weight[group]
                rank.second = first[group]
            else:
                rank.first = 1
        ranks.push_back(rank)
    sort(ranks.begin(), ranks.end(), &before)
    ordered = [waiting[ranks[place].place] for place in range(count)]
    waiting[:] = ordered
    return 0
