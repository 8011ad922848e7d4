"""The simulated worker: its memory and its step times, read from a small JSON file."""

from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Annotated

import msgspec

from coresched.errors import InputError

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10**15)]

DEFAULT_MODEL = "h20-tp4-hybrid"


class StepTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Durations of the engine's steps, all in seconds.

    A decode step of n sequences holding S context tokens takes
    ``decode_step + decode_sequence * min(n, knee) + decode_sequence_beyond_knee * max(0, n - knee)
    + decode_context_token * S``.
    A prefill batch takes ``prefill_batch + prefill_token * new + prefill_attended_token * sum(new * context)
    + prefill_request * requests`` plus what ordering the waiting queue cost.
    """

    decode_step_s: Seconds
    decode_sequence_s: Seconds
    decode_knee_sequences: Annotated[int, msgspec.Meta(ge=0, le=10**15)]
    decode_sequence_beyond_knee_s: Seconds
    decode_context_token_s: Seconds
    prefill_batch_s: Seconds
    prefill_request_s: Seconds
    prefill_token_s: Seconds
    prefill_attended_token_s: Seconds
    turnaround_s: Seconds
    """Client time before a request reaches its worker."""
    turnaround_token_s: Seconds
    """The same, for each prompt token."""
    match_s: Seconds
    """One prefix match in the cache."""
    match_token_s: Seconds
    """The same, for each matched token."""
    tree_node_s: Seconds
    """One prefix-tree node visited by dfs-weight."""
    queue_entry_s: Seconds
    """Sorting, for each waiting request of a scheduling pass."""


class WorkerModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One worker's memory and step times.

    ``pool_tokens`` is M, the memory of both cache pools counted in KV tokens; ``request_state_tokens`` is
    F_state / c_kv, what the ``slots_per_request`` (S_state) recurrent-state slots reserved for a running
    request cost in the same unit. A running request really holds ``running_request_slots``, a cached idle one
    holds one.
    """

    name: str
    description: str
    pool_tokens: Count
    request_state_tokens: Count
    slots_per_request: Count
    running_request_slots: Annotated[float, msgspec.Meta(ge=1, le=1e6)]
    default_state_ratio: Annotated[float, msgspec.Meta(ge=1e-6, le=1e6)]
    page_tokens: Count
    prefill_chunk_tokens: Count
    max_running_requests: Count
    overlap_schedule: bool
    times: StepTimes


def load_worker_model(source: str | Path = DEFAULT_MODEL) -> WorkerModel:
    """Read a worker model: a shipped name or the path of a JSON file of the same form.

    Raises InputError naming the file, the field and the fix.
    """
    shipped = resources.files(__package__) / "models"
    names = sorted(entry.name.removesuffix(".json") for entry in shipped.iterdir())
    if str(source) in names:
        text = (shipped / f"{source}.json").read_bytes()
    else:
        try:
            text = Path(source).read_bytes()
        except OSError as error:
            raise InputError(
                f"worker model {str(source)!r} is neither a readable file ({error.strerror}) nor a shipped "
                f"model; shipped: {', '.join(names)}"
            ) from None
    try:
        model = msgspec.json.decode(text, type=WorkerModel)
    except msgspec.DecodeError as error:
        raise InputError(f"worker model {str(source)!r}: {error}") from None
    if model.running_request_slots > model.slots_per_request:
        raise InputError(
            f"worker model {str(source)!r}: running_request_slots is {model.running_request_slots}; it must "
            f"not exceed slots_per_request ({model.slots_per_request}), which reserves them"
        )
    numbers = [model.default_state_ratio, *msgspec.structs.astuple(model.times)]
    if not all(isfinite(number) for number in numbers):
        raise InputError(f"worker model {str(source)!r}: every number must be finite")
    return model
