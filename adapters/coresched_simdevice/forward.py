"""What one forward of SGLang's batch takes on the simulated device."""

from collections.abc import Sequence
from typing import Protocol

from coresched_engine.virtual.forward import Forward

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
    """Seconds of one forward of ``batch``, as `Forward.seconds` has it.

    A request is counted as admitted with its first chunk, so once each time it leaves the waiting queue. An
    idle forward (a rank without sequences, whose device waits for the others) takes 0.

    What the scheduler does on the CPU (matching prefixes, sorting the queue) is not in it: there it is real.

    Raises NotImplementedError for the other modes: speculative decoding, split prefill and diffusion models.
    """
    mode, forward = batch.forward_mode, Forward()
    if mode.is_idle():
        return 0.0
    if mode.is_decode():
        lengths = batch.seq_lens_cpu.tolist()
        forward.decode(sum(lengths), len(lengths))
        return forward.seconds(times)
    if mode.name not in EXTEND_MODES or batch.prefix_lens is None or batch.extend_lens is None:
        raise NotImplementedError(f"the simulated device has no duration for a forward of mode {mode.name}")
    decoding = len(batch.decoding_reqs or ())
    extending = len(batch.reqs) - decoding
    for request, computed, new in zip(
        batch.reqs[:extending], batch.prefix_lens[:extending], batch.extend_lens[:extending], strict=True
    ):
        forward.extend(computed, new, admitted=request.extend_batch_idx == 1)
    forward.decode(sum(batch.prefix_lens[extending:]) + decoding, decoding)
    return forward.seconds(times)
