"""Metrics of a replay, held to sums over a fine grid of time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.lab.replay.events import (
    Admission,
    AnyEvent,
    Completion,
    EnvironmentStage,
    FailedInference,
    Inference,
)
from coresched.lab.replay.summary import measure


def inference(sample: str, worker: str, sent: float, ended: float, **fields: object) -> Inference:
    values = {
        "turn": 0,
        "prompt_tokens": 100,
        "cached_tokens": 60,
        "output_tokens": 10,
        "first_token_s": None,
    }
    return Inference(sample=sample, worker=worker, sent_s=sent, ended_s=ended, **(values | fields))  # type: ignore[arg-type]


EVENTS: list[AnyEvent] = [
    Admission("a", 1.0),
    Admission("b", 2.0),
    inference("a", "w0", 1.0, 5.0, first_token_s=1.0, cached_tokens=0),
    inference("b", "w1", 2.0, 4.0, cached_tokens=0),
    FailedInference("b", 1, "w1", 4.0, 5.0, "no"),
    EnvironmentStage("a", 0, requested_s=5.0, started_s=6.0, ended_s=8.5, duration_s=2.0),
    inference("a", "w1", 9.0, 11.0, turn=1, output_tokens=30),
    Completion("a", 11.0),
    inference("b", "w1", 9.0, 13.0, turn=1, output_tokens=20),
    Completion("b", 13.0),
]


def test_each_metric_is_what_it_is_named_for() -> None:
    metrics = measure(EVENTS, samples=2, endpoints=["w0", "w1"])
    assert (metrics.completed_samples, metrics.turns, metrics.makespan_s) == (2, 4, 12.0)
    assert metrics.tail_s == {"5": 0.0, "10": 0.0}  # t_95 of two samples is the second
    assert (metrics.input_tokens, metrics.output_tokens, metrics.new_prefill_tokens) == (400, 70, 280)
    assert metrics.cache_reuse == 0.3
    assert metrics.first_turn_cached_tokens == 0
    assert metrics.output_tokens_per_s == pytest.approx(70 / 12)
    assert metrics.mean_in_flight == pytest.approx((4 + 2 + 1 + 2 + 4) / 12)
    # Two on w0 and w1 in 2-4 and 4-5 (the failed one counts): d = 0. Two on w1 in 9-11: d = 1.
    assert metrics.request_imbalance == pytest.approx(2 / 5)
    assert metrics.output_imbalance == pytest.approx((60 - 10) / 70)
    assert (metrics.ttft_s, metrics.tpot_s) == (1.0, pytest.approx(3 / 9))
    assert (metrics.inference_s, metrics.environment_s, metrics.environment_queue_s) == (12.0, 2.5, 1.0)
    assert (metrics.environment_late_s, metrics.worst_environment_late_s) == (0.5, 0.5)
    assert (metrics.migrations, metrics.failed_requests) == (1, 1)
    assert metrics.turns_by_worker == {"w0": 1, "w1": 3}


def test_a_part_has_no_makespan_and_no_tail() -> None:
    for length in range(len(EVENTS)):
        metrics = measure(EVENTS[:length], samples=2, endpoints=["w0", "w1"])
        assert (metrics.makespan_s, metrics.tail_s) == (None, None)


def test_an_engine_that_does_not_count_its_cache_has_no_reuse() -> None:
    metrics = measure([inference("a", "w", 0.0, 1.0, cached_tokens=None)], samples=1, endpoints=["w"])
    assert (metrics.cache_reuse, metrics.new_prefill_tokens) == (None, None)
    assert (metrics.request_imbalance, metrics.output_imbalance) == (None, None)


def test_workers_behind_a_gateway_are_those_that_it_told() -> None:
    metrics = measure(EVENTS, samples=2, endpoints=["gateway"])
    assert metrics.turns_by_worker == {"w0": 1, "w1": 3}
    assert metrics.request_imbalance == pytest.approx(2 / 5)


requests = st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(0, 2))


@given(st.lists(requests, max_size=20))
def test_in_flight_and_imbalance_are_integrals(given_requests: list[tuple[int, int, int]]) -> None:
    events = [
        inference(f"s{n}", f"w{worker}", float(start), float(start + length))
        for n, (start, length, worker) in enumerate(given_requests)
    ]
    metrics = measure(events, samples=99, endpoints=["w0", "w1", "w2"])
    over = busy = flying = 0.0
    for second in range(50):
        loads = [0, 0, 0]
        for start, length, worker in given_requests:
            loads[worker] += start <= second < start + length
        total = sum(loads)
        flying += total
        if total > 1:
            busy += 1
            over += sum(abs(load - total / 3) for load in loads) / (2 * total * (1 - 1 / 3))
    assert metrics.request_imbalance == pytest.approx(over / busy if busy else 0.0)
    assert metrics.mean_in_flight * metrics.elapsed_s == pytest.approx(flying)
