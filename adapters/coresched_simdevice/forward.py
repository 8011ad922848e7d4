"""What one forward of SGLang's batch takes on the simulated device."""

from collections.abc import Sequence
from typing import Protocol

from coresched.lab.simulator.model import StepTimes


class ForwardMode(Protocol):
    """The questions that are asked of SGLang's ``ForwardMode``."""

    name: str

    def is_idle(self) -> bool: ...
    def is_decode(self) -> bool: ...


class Request(Protocol):
    """SGLang's ``Req``."""

    extend_batch_idx: int
    """Forwards that computed a chunk of this request since it left the waiting queue, this one included."""


class Lengths(Protocol):
    """A tensor of integers."""

    def tolist(self) -> list[int]: ...


class Batch(Protocol):
    """SGLang's ``ScheduleBatch``; rows are sequences.

    In a mixed batch the requests that decode, ``decoding_reqs``, are the last rows.
    """

    forward_mode: ForwardMode
    reqs: Sequence[Request]
    decoding_reqs: Sequence[Request] | None
    prefix_lens: Sequence[int] | None
    """Tokens before each row's chunk, whose keys and values exist. Extends only, like the next one."""
    extend_lens: Sequence[int] | None
    seq_lens_cpu: Lengths
    """Tokens of each row at the end of this forward."""


EXTEND_MODES = ("EXTEND", "MIXED")
"""Names of the forward modes that compute prompt tokens and have a duration here."""


def step_seconds(batch: Batch, times: StepTimes) -> float:
    """Seconds of one forward of ``batch``, by the formulas of `StepTimes`.

    - Decode of n sequences with S tokens in all, the ones computed now included:
      ``decode_step + decode_sequences(n) + decode_context_token * S``.
    - Extend of chunks of ``new`` tokens behind ``computed`` ones: ``prefill_batch + prefill_token * sum(new)
      + prefill_attended_token * sum(new * (computed + new / 2)) + prefill_request * requests``. Each new
      token attends to what is before it, on average half of its own chunk, as in the simulator's worker. A
      request is counted with its first chunk, so once each time it leaves the waiting queue.
    - Mixed: the sum, but the weights are read once: of ``prefill_batch`` and ``decode_step`` only the larger.
    - Idle (a rank without sequences, whose device waits for the others): 0.

    What the scheduler does on the CPU (matching prefixes, sorting the queue) is not in it: there it is real.

    Raises NotImplementedError for the other modes: speculative decoding, split prefill and diffusion models.
    """
    mode = batch.forward_mode
    if mode.is_idle():
        return 0.0
    if mode.is_decode():
        lengths = batch.seq_lens_cpu.tolist()
        return times.decode_step_s + _decode_rows_seconds(len(lengths), sum(lengths), times)
    if mode.name not in EXTEND_MODES or batch.prefix_lens is None or batch.extend_lens is None:
        raise NotImplementedError(f"the simulated device has no duration for a forward of mode {mode.name}")
    decoding = len(batch.decoding_reqs or ())
    extending = len(batch.reqs) - decoding
    requests, new_tokens, attended = 0, 0, 0.0
    for request, computed, new in zip(
        batch.reqs[:extending], batch.prefix_lens[:extending], batch.extend_lens[:extending], strict=True
    ):
        requests += request.extend_batch_idx == 1
        new_tokens += new
        attended += new * (computed + new * 0.5)
    context = sum(batch.prefix_lens[extending:]) + decoding
    base = max(times.prefill_batch_s if extending else 0.0, times.decode_step_s if decoding else 0.0)
    return (
        base
        + times.prefill_token_s * new_tokens
        + times.prefill_attended_token_s * attended
        + times.prefill_request_s * requests
        + _decode_rows_seconds(decoding, context, times)
    )


def _decode_rows_seconds(sequences: int, context_tokens: int, times: StepTimes) -> float:
    knee = times.decode_knee_sequences
    return (
        times.decode_sequence_s * min(sequences, knee)
        + times.decode_sequence_beyond_knee_s * max(0, sequences - knee)
        + times.decode_context_token_s * context_tokens
    )
