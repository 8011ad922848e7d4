from coresched.core.prefix cimport LabelTiers


cdef class ResidencyPolicy(LabelTiers):
    pass
