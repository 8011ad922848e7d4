cpdef str check_label(object value, str name)
cpdef list check_several(object value, str name, str what)
cpdef double check_finite(object value, str name) except? -1.0
cpdef double check_positive(object value, str name) except? -1.0
cpdef long long check_count(object value, str name, long long minimum) except? -1
cpdef long long check_slack(object value) except? -1
cdef str shown(object value)
