"""CAAS: hand-computed orders of the environment queue, held by the compiled queue and its twin alike."""

import copy
import doctest
import math
import random
import weakref
from typing import Any

import pytest

import coresched.core.chain
from coresched.core import ChainAdvancingQueue
from coresched.core.reference import ReferenceChainQueue

Queue = type[ChainAdvancingQueue] | type[ReferenceChainQueue]


@pytest.fixture(params=[ChainAdvancingQueue, ReferenceChainQueue])
def queue_class(request: pytest.FixtureRequest) -> Queue:
    return request.param  # type: ignore[no-any-return]


def drain(queue: Any) -> list[Any]:
    return [queue.pop() for _ in range(len(queue))]


def push(
    queue: Any, job: Any, requested_at: float = 0.0, turns: int = 1, mean_inference_s: float = 0.0
) -> None:
    queue.push(job, requested_at=requested_at, turns=turns, mean_inference_s=mean_inference_s)


def test_arrival_band_comes_before_depth(queue_class: Queue) -> None:
    queue = queue_class(band_s=30.0)
    push(queue, "deep, second band", requested_at=30.0, turns=50)
    push(queue, "shallow, first band", requested_at=29.999, turns=1)
    assert drain(queue) == ["shallow, first band", "deep, second band"]


def test_depth_comes_before_the_inference_bucket_within_a_band(queue_class: Queue) -> None:
    queue = queue_class(band_s=30.0, bucket_s=1.0)
    push(queue, "3 turns, fast", requested_at=0.0, turns=3, mean_inference_s=0.1)
    push(queue, "7 turns, slow", requested_at=29.0, turns=7, mean_inference_s=9.0)
    push(queue, "7 turns, fast", requested_at=28.0, turns=7, mean_inference_s=1.9)
    assert drain(queue) == ["7 turns, fast", "7 turns, slow", "3 turns, fast"]


def test_means_within_one_bucket_are_equal_and_the_earlier_entry_goes_first(queue_class: Queue) -> None:
    queue = queue_class(bucket_s=1.0)
    for job, mean in [("1.9", 1.9), ("1.0", 1.0), ("0.99", 0.99), ("2.0", 2.0)]:
        push(queue, job, mean_inference_s=mean)
    assert drain(queue) == ["0.99", "1.9", "1.0", "2.0"]


def test_equal_keys_leave_first_in_first_out(queue_class: Queue) -> None:
    queue = queue_class()
    for job in range(100):
        push(queue, job)
    for job in range(0, 100, 3):
        assert queue.discard(job)
    assert drain(queue) == [job for job in range(100) if job % 3]


def test_the_entry_sequence_goes_on_after_the_queue_was_empty_and_a_job_that_returns_is_last(
    queue_class: Queue,
) -> None:
    queue = queue_class()
    push(queue, "a")
    push(queue, "b")
    assert queue.pop() == "a"
    push(queue, "a")
    assert drain(queue) == ["b", "a"]


def test_negative_times_are_floored_not_truncated(queue_class: Queue) -> None:
    queue = queue_class(band_s=30.0)
    push(queue, "band 0", requested_at=0.0, turns=9)
    push(queue, "band 0 too", requested_at=-0.0, turns=8)
    push(queue, "band -1", requested_at=-0.5, turns=1)
    push(queue, "band -1, deeper", requested_at=-30.0, turns=2)
    push(queue, "band -2", requested_at=-30.5, turns=0)
    assert drain(queue) == ["band -2", "band -1, deeper", "band -1", "band 0", "band 0 too"]


def test_bands_beyond_64_bits_keep_their_order(queue_class: Queue) -> None:
    queue = queue_class(band_s=1e-3)
    for job in [1e300, -1e300, 1e18, 2.0**70, -(2.0**70), 1e-9, -1e19]:
        push(queue, job, requested_at=job)
    assert drain(queue) == [-1e300, -(2.0**70), -1e19, 1e-9, 1e18, 2.0**70, 1e300]


def test_buckets_beyond_64_bits_keep_their_order(queue_class: Queue) -> None:
    queue = queue_class(bucket_s=1e-300)
    for job in [1e7, 5e-324, 1.0, 0.0]:
        push(queue, job, mean_inference_s=job)
    assert drain(queue) == [5e-324, 0.0, 1.0, 1e7]  # 5e-324 / 1e-300 is below one bucket, as is 0


def test_turns_up_to_the_largest_64_bit_int(queue_class: Queue) -> None:
    queue = queue_class()
    for turns in [0, 2**63 - 1, 1, 2**62]:
        push(queue, turns, turns=turns)
    assert drain(queue) == [2**63 - 1, 2**62, 1, 0]


def test_a_small_band_is_first_come_first_served_and_a_large_one_depth_first(queue_class: Queue) -> None:
    jobs = [(0.0, 1), (0.4, 9), (1.1, 4), (1.3, 7)]
    orders = []
    for band in (0.1, 1e9):
        queue = queue_class(band_s=band)
        for at, turns in jobs:
            push(queue, turns, requested_at=at, turns=turns)
        orders.append(drain(queue))
    assert orders == [[1, 9, 4, 7], [9, 7, 4, 1]]


def test_the_key_is_fixed_while_a_job_waits(queue_class: Queue) -> None:
    queue = queue_class()
    push(queue, "shallow", turns=1)
    push(queue, "middle", turns=5)
    with pytest.raises(ValueError, match="job must not be waiting already, got 'shallow'"):
        push(queue, "shallow", turns=99)
    assert len(queue) == 2
    assert drain(queue) == ["middle", "shallow"]


def test_a_refused_push_takes_no_place_in_the_entry_sequence_and_lets_nothing_wait(
    queue_class: Queue,
) -> None:
    queue = queue_class()
    with pytest.raises(TypeError):
        push(queue, ["unhashable"])
    with pytest.raises(ValueError, match="turns"):
        push(queue, "job", turns=-1)
    assert (len(queue), "job" in queue) == (0, False)
    push(queue, "job")
    assert drain(queue) == ["job"]


def test_peek_leaves_the_job_and_pop_takes_it(queue_class: Queue) -> None:
    queue = queue_class()
    push(queue, "a", turns=1)
    push(queue, "b", turns=2)
    assert (queue.peek(), queue.peek(), len(queue)) == ("b", "b", 2)
    assert (queue.pop(), queue.peek(), len(queue)) == ("b", "a", 1)


def test_an_empty_queue_has_nothing_to_pop_or_peek(queue_class: Queue) -> None:
    queue = queue_class()
    with pytest.raises(IndexError):
        queue.pop()
    with pytest.raises(IndexError):
        queue.peek()


def test_discard_says_whether_the_job_was_waiting(queue_class: Queue) -> None:
    queue = queue_class()
    push(queue, "a")
    assert "a" in queue
    assert (queue.discard("a"), queue.discard("a"), queue.discard("never")) == (True, False, False)
    assert ("a" in queue, len(queue)) == (False, 0)
    push(queue, "a")
    assert queue.pop() == "a"


def test_discarding_from_the_middle_keeps_the_order_of_the_rest(queue_class: Queue) -> None:
    # In this order of entry 19, last in the heap, takes the place of 31 below 30 and must rise above it.
    entered = [0, 30, 10, 31, 40, 11, 12, 32, 33, 41, 42, 13, 14, 18, 19]
    queue = queue_class()
    for mean in entered:
        push(queue, mean, mean_inference_s=float(mean))
    assert queue.discard(31)
    assert drain(queue) == sorted(set(entered) - {31})


@pytest.mark.parametrize("seed", range(5))
def test_discarding_half_of_many_keeps_the_order_of_the_rest(queue_class: Queue, seed: int) -> None:
    rng = random.Random(seed)
    jobs = list(range(300))
    rng.shuffle(jobs)
    queue = queue_class()
    for job in jobs:
        push(queue, job, mean_inference_s=float(job))
    discarded = set(rng.sample(jobs, 150))
    for job in discarded:
        assert queue.discard(job)
    assert drain(queue) == [job for job in range(300) if job not in discarded]


def test_none_is_a_job_like_any_other(queue_class: Queue) -> None:
    queue = queue_class()
    push(queue, None)
    assert (None in queue, queue.discard(None), queue.discard(None)) == (True, True, False)


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("requested_at", math.nan, ValueError),
        ("requested_at", -math.inf, ValueError),
        ("requested_at", "1.0", TypeError),
        ("requested_at", True, TypeError),
        ("turns", -1, ValueError),
        ("turns", 2**63, ValueError),
        ("turns", 1.0, TypeError),
        ("turns", False, TypeError),
        ("mean_inference_s", -1e-9, ValueError),
        ("mean_inference_s", math.nan, ValueError),
        ("mean_inference_s", math.inf, ValueError),
        ("mean_inference_s", None, TypeError),
    ],
)
def test_a_bad_argument_is_named(argument: str, value: object, error: type[Exception]) -> None:
    queue = ChainAdvancingQueue()
    arguments: dict[str, Any] = {"requested_at": 0.0, "turns": 1, "mean_inference_s": 0.0, argument: value}
    with pytest.raises(error, match=f"^{argument} "):
        queue.push("job", **arguments)
    assert len(queue) == 0


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("argument", ["band_s", "bucket_s"])
def test_bands_and_buckets_are_finite_and_above_zero(argument: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{argument} must be"):
        ChainAdvancingQueue(**{argument: value})


def test_a_quotient_that_overflows_names_its_argument() -> None:
    queue = ChainAdvancingQueue(band_s=0.5, bucket_s=0.5)
    for at in (1e308, -1e308):
        with pytest.raises(
            ValueError, match=r"^requested_at must be a finite number of bands, got -?1e\+308 s"
        ):
            push(queue, "job", requested_at=at)
    with pytest.raises(ValueError, match=r"^mean_inference_s must be a finite number of buckets"):
        push(queue, "job", mean_inference_s=1e308)
    assert len(queue) == 0


def test_the_settings_can_be_read() -> None:
    queue = ChainAdvancingQueue(band_s=12, bucket_s=0.25)
    assert (queue.band_s, queue.bucket_s) == (12.0, 0.25)
    assert (ChainAdvancingQueue().band_s, ChainAdvancingQueue().bucket_s) == (30.0, 1.0)


def test_a_job_that_left_is_not_kept_alive() -> None:
    class Job:
        pass

    queue = ChainAdvancingQueue()
    popped, discarded = Job(), Job()
    push(queue, popped)
    push(queue, discarded)
    queue.pop()
    queue.discard(discarded)
    references = [weakref.ref(popped), weakref.ref(discarded)]
    del popped, discarded
    assert [reference() for reference in references] == [None, None]


def test_a_queue_refuses_to_be_copied() -> None:
    with pytest.raises(TypeError):
        copy.deepcopy(ChainAdvancingQueue())


def test_the_documented_example_holds() -> None:
    result = doctest.testmod(coresched.core.chain)
    assert result.attempted > 0
    assert result.failed == 0
