"""What a simulated run counted, before metrics are made of it."""

from array import array
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """Raw sums of one run; seconds are virtual. Filled in by the compiled simulator and by its twin alike."""

    workers: int
    events: int = 0
    decode_steps: int | None = 0
    """None where the workers do not say it, as below."""
    requests: int = 0
    input_tokens: int = 0
    new_prefill_tokens: int = 0
    output_tokens: list[int] = field(default_factory=list)
    """Generated on each worker."""
    busy_s: list[float] = field(default_factory=list)
    """Time each worker spent computing."""
    priority_s: float | None = 0.0
    """Time all workers spent ordering their waiting queues."""
    evictions: int | None = 0
    migrations: int = 0
    """Turns served by another worker than the trajectory's previous turn."""
    ttft_s: float = 0.0
    """Sum over requests, arrival to first token."""
    decode_s: float = 0.0
    """Sum over requests, first token to end."""
    environment_s: float = 0.0
    in_flight_s: float = 0.0
    """Integral of the requests in flight."""
    imbalance_s: float = 0.0
    """Integral of d(t) while more than one request is in flight."""
    shared_load_s: float = 0.0
    """Time during which more than one request is in flight, |J|."""
    completed_s: list[float] = field(default_factory=list)
    """Completion times of the samples, ascending."""
    load_t: "array[float]" = field(default_factory=lambda: array("d"))
    """When a request reached or left a worker, ascending."""
    load_worker: "array[int]" = field(default_factory=lambda: array("i"))
    """Which worker, in step with ``load_t``."""
    load_change: "array[int]" = field(default_factory=lambda: array("i"))
    """+1 or -1, in step with ``load_t``."""
