from libcpp.vector cimport vector

from coresched.lab.simulator.engine.columns cimport Columns

cdef int arrange_by_hits(list waiting, Columns columns, const vector[long long]& hits, bint depth_first) except -1
