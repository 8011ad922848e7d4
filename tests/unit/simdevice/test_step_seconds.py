"""The duration of one forward, on plain stand-ins of SGLang's batch."""

from array import array
from dataclasses import dataclass, field

import pytest
from coresched_simdevice.forward import step_seconds

from coresched.lab.simulator.model import StepTimes

TIMES = StepTimes(
    decode_step_s=1.0,
    decode_sequence_s=0.1,
    decode_knee_sequences=2,
    decode_sequence_beyond_knee_s=0.01,
    decode_context_token_s=0.001,
    prefill_batch_s=3.0,
    prefill_request_s=0.5,
    prefill_token_s=0.02,
    prefill_attended_token_s=0.0001,
    turnaround_s=100.0,
    turnaround_token_s=100.0,
    match_s=100.0,
    match_token_s=100.0,
    tree_node_s=100.0,
    queue_entry_s=100.0,
)


@dataclass
class Mode:
    name: str

    def is_idle(self) -> bool:
        return self.name == "IDLE"

    def is_decode(self) -> bool:
        return self.name == "DECODE"


@dataclass
class Chunk:
    extend_batch_idx: int = 1


@dataclass
class Rows:
    forward_mode: Mode
    reqs: list[Chunk] = field(default_factory=list)
    decoding_reqs: list[Chunk] | None = None
    prefix_lens: list[int] | None = None
    extend_lens: list[int] | None = None
    seq_lens_cpu: "array[int]" = field(default_factory=lambda: array("q"))


def decode(*lengths: int) -> Rows:
    return Rows(Mode("DECODE"), [Chunk() for _ in lengths], seq_lens_cpu=array("q", lengths))


def extend(*chunks: tuple[int, int, int], decoding: tuple[int, ...] = (), mode: str = "EXTEND") -> Rows:
    """Chunks of (computed, new, number of the chunk), then sequences that decode, of so many tokens."""
    tail = [Chunk(1) for _ in decoding]
    return Rows(
        Mode(mode),
        [Chunk(number) for _, _, number in chunks] + tail,
        tail,
        [computed for computed, _, _ in chunks] + [length - 1 for length in decoding],
        [new for _, new, _ in chunks] + [1 for _ in decoding],
    )


def test_a_decode_step_reads_every_context_token() -> None:
    assert step_seconds(decode(100, 300), TIMES) == pytest.approx(1.0 + 2 * 0.1 + 0.4)


def test_sequences_beyond_the_knee_have_their_own_cost() -> None:
    assert step_seconds(decode(1, 1, 1, 1, 1), TIMES) == pytest.approx(1.0 + 2 * 0.1 + 3 * 0.01 + 0.005)


def test_a_prefill_attends_to_the_cached_prefix_and_half_of_itself() -> None:
    batch = extend((1000, 10, 1), (0, 100, 1))
    attended = 10 * 1005 + 100 * 50
    assert step_seconds(batch, TIMES) == pytest.approx(3.0 + 2 * 0.5 + 110 * 0.02 + attended * 0.0001)


def test_chunks_of_a_prompt_are_one_request() -> None:
    whole = step_seconds(extend((0, 200, 1)), TIMES)
    chunks = step_seconds(extend((0, 150, 1)), TIMES) + step_seconds(extend((150, 50, 2)), TIMES)
    assert chunks == pytest.approx(whole + TIMES.prefill_batch_s)


def test_a_mixed_batch_reads_the_weights_once() -> None:
    prefill, decoding = step_seconds(extend((0, 64, 1)), TIMES), step_seconds(decode(500, 700), TIMES)
    mixed = step_seconds(extend((0, 64, 1), decoding=(500, 700), mode="MIXED"), TIMES)
    assert mixed == pytest.approx(prefill + decoding - TIMES.decode_step_s)


def test_decodes_viewed_as_extends_cost_what_decodes_do() -> None:
    assert step_seconds(extend(decoding=(500, 700)), TIMES) == pytest.approx(
        step_seconds(decode(500, 700), TIMES)
    )


def test_an_idle_rank_takes_no_time() -> None:
    assert step_seconds(Rows(Mode("IDLE")), TIMES) == 0.0


def test_a_mode_without_a_duration_is_named() -> None:
    with pytest.raises(NotImplementedError, match="TARGET_VERIFY"):
        step_seconds(extend((0, 4, 1), mode="TARGET_VERIFY"), TIMES)
