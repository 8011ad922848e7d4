"""The workload's columns as C arrays."""

from cpython.array cimport array


cdef class Columns:
    """Pointers into a Workload's arrays, which it keeps alive."""

    def __init__(self, workload):
        self.workload = workload
        self.labels = workload.labels
        self.samples = len(workload.labels)
        self.groups = workload.groups
        self.first_turn = (<array>workload.first_turn).data.as_longlongs
        self.prompt = (<array>workload.prompt_tokens).data.as_longlongs
        self.output = (<array>workload.output_tokens).data.as_longlongs
        self.cached = (<array>workload.cached_tokens).data.as_longlongs
        self.environment_s = (<array>workload.environment_s).data.as_doubles
        self.group = (<array>workload.group).data.as_longlongs
        self.shared = (<array>workload.shared_tokens).data.as_longlongs
