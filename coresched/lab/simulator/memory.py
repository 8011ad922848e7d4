"""A worker's discrete pools, and the check that a workload can run in them at all."""

from dataclasses import dataclass
from fractions import Fraction
from math import floor

from coresched.errors import InputError
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.settings import LEAST, MOST, PoolPolicy
from coresched.lab.simulator.workload import Workload

SLOT_UNITS = 100
"""State slots are counted in hundredths, so that a fractional mean occupancy stays an integer."""


@dataclass(frozen=True)
class Memory:
    """KV pages, state slots (in SLOT_UNITS) and concurrent requests of one worker."""

    pages: int
    page_tokens: int
    slot_units: int
    running_slot_units: int
    max_running: int
    slot_tokens: Fraction | None = None
    """What a state slot takes, in KV tokens, where capacity may move between the pools; None: it may not."""

    def resized(self, moved_slots: int) -> tuple[int, int]:
        """Pages and slot units after that many slots' worth of memory went from the KV to the state pool.

        Negative: the other way. Only where capacity may move.
        """
        assert self.slot_tokens is not None
        kv_tokens = self.kv_tokens - moved_slots * self.slot_tokens
        return floor(kv_tokens / self.page_tokens), self.slot_units + moved_slots * SLOT_UNITS

    @property
    def kv_tokens(self) -> int:
        return self.pages * self.page_tokens

    @property
    def largest_request(self) -> int:
        """KV tokens of the longest prompt and reply that an empty worker can hold."""
        return self.kv_tokens - self.page_tokens


def split_memory(model: WorkerModel, state_ratio: float, pool_policy: PoolPolicy = "static") -> Memory:
    """Divide M at r = ``state_ratio``: floor(M/(1+r)) KV tokens in whole pages, the rest in whole slots.

    With avmp that is where the pools begin, and requests at once are limited by what they then find in them,
    no longer by S_state slots for each.

    Raises InputError for a ratio out of range, or when no request fits.
    """
    if not LEAST <= state_ratio <= MOST:
        raise InputError(f"state_ratio is {state_ratio!r}; it must be from {LEAST:g} to {MOST}")
    kv_tokens = floor(model.pool_tokens / (1 + state_ratio))
    state_tokens = model.pool_tokens * state_ratio / (1 + state_ratio)
    slots = floor(state_tokens * model.slots_per_request / model.request_state_tokens)
    max_running = min(slots // model.slots_per_request, model.max_running_requests)
    if max_running < 1:
        raise InputError(
            f"state_ratio is {state_ratio!r}; it leaves {slots} state slots on worker model {model.name!r}, "
            f"fewer than the {model.slots_per_request} that one request needs; raise it"
        )
    movable = pool_policy == "avmp"
    return Memory(
        pages=kv_tokens // model.page_tokens,
        page_tokens=model.page_tokens,
        slot_units=slots * SLOT_UNITS,
        running_slot_units=round(model.running_request_slots * SLOT_UNITS),
        max_running=model.max_running_requests if movable else max_running,
        slot_tokens=Fraction(model.request_state_tokens, model.slots_per_request) if movable else None,
    )


def require_fit(workload: Workload, memory: Memory) -> None:
    """Refuse a workload with a request that no empty worker could hold.

    Raises InputError naming the trajectory.
    """
    for sample, label in enumerate(workload.labels):
        for turn in range(workload.first_turn[sample], workload.first_turn[sample + 1]):
            tokens = workload.prompt_tokens[turn] + workload.output_tokens[turn]
            if tokens > memory.largest_request:
                number = turn - workload.first_turn[sample]
                raise InputError(
                    f"trajectory {label!r}: turns[{number}] needs {tokens} KV tokens but a worker's KV pool "
                    f"holds {memory.kv_tokens}; lower state_ratio or use a worker model with more memory"
                )
