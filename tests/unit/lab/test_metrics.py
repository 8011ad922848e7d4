"""Metrics, bounds and curves on numbers computed by hand."""

import pytest
from simulated import prepare, settings, small_model, trajectory

from coresched.lab.bounds import Bounds, lower_bounds
from coresched.lab.metrics import measure, time_completed
from coresched.lab.report.series import completion_curve, in_flight_curves, total_curve
from coresched.lab.simulator.outcome import Outcome

CHANGES = [(0.0, 0, 1), (0.0, 1, 1), (10.0, 1, -1), (20.0, 0, -1)]


def outcome(**changes: object) -> Outcome:
    fields: dict[str, object] = {
        "workers": 2,
        "requests": 4,
        "input_tokens": 1000,
        "new_prefill_tokens": 250,
        "output_tokens": [30, 10],
        "busy_s": [5.0, 10.0],
        "completed_s": [4.0, 8.0, 10.0, 20.0],
        "in_flight_s": 30.0,
        "imbalance_s": 3.0,
        "shared_load_s": 12.0,
        "ttft_s": 2.0,
        "decode_s": 18.0,
    }
    return Outcome(**(fields | changes))  # type: ignore[arg-type]


def test_metrics_are_the_ratios_they_are_named_for() -> None:
    metrics = measure(outcome())
    assert metrics.makespan_s == 20.0
    assert metrics.cache_reuse == 0.75
    assert metrics.output_tokens_per_s == 2.0
    assert metrics.mean_in_flight == 1.5
    assert metrics.request_imbalance == 0.25
    assert metrics.output_imbalance == 0.5  # |30 - 10| / 40
    assert metrics.ttft_s == 0.5
    assert metrics.tpot_s == 0.5  # 18 s over 40 - 4 tokens
    assert metrics.worker_busy == [0.25, 0.5]


def test_output_imbalance_of_three_workers_is_the_normalised_mean_deviation() -> None:
    # mean 20, deviations 40 + 20 + 20 = 80, over 2 * 60 * (2/3) = 80: all on one worker is 1.
    assert measure(
        outcome(workers=3, output_tokens=[60, 0, 0], busy_s=[0.0] * 3)
    ).output_imbalance == pytest.approx(1)
    assert measure(outcome(workers=3, output_tokens=[20, 20, 20], busy_s=[0.0] * 3)).output_imbalance == 0


def test_one_worker_has_no_imbalance() -> None:
    metrics = measure(outcome(workers=1, output_tokens=[40], busy_s=[1.0]))
    assert metrics.request_imbalance is None
    assert metrics.output_imbalance is None


def test_no_second_token_no_tpot() -> None:
    assert measure(outcome(output_tokens=[2, 2])).tpot_s is None


def test_tail_is_counted_from_the_first_time_the_fraction_is_reached() -> None:
    times = [float(number) for number in range(1, 101)]
    assert time_completed(times, 95) == 95.0
    assert time_completed([1.0, 2.0, 3.0], 95) == 3.0
    assert time_completed([1.0, 2.0, 3.0], 66) == 2.0
    assert time_completed([1.0, 2.0, 3.0], 67) == 3.0
    metrics = measure(outcome(completed_s=times))
    assert metrics.tail_s == {"5": 5.0, "10": 10.0}


def test_bounds_of_one_chain() -> None:
    model = small_model()
    times = model.times
    batch = [trajectory("a", [(11, 30.0, 20), (1, 5.0, 0)], prompt=100)]
    workload, _, _, _ = prepare(batch, settings(), model)
    bounds = lower_bounds(workload, model, workers=2, environment_concurrency=1)
    first = (
        times.turnaround_s
        + times.turnaround_token_s * 100
        + times.prefill_batch_s
        + times.prefill_request_s
        + times.prefill_token_s * 100
        + times.prefill_attended_token_s * 100 * 50
        + 10 * (times.decode_step_s + times.decode_sequence_s)
        + times.decode_context_token_s * (10 * 101 + 45)
    )
    second = (
        times.turnaround_s
        + times.turnaround_token_s * 131
        + times.prefill_batch_s
        + times.prefill_request_s
        + times.prefill_token_s * 20
        + times.prefill_attended_token_s * 20 * (111 + 10)
    )
    assert bounds.longest_chain_s == pytest.approx(first + 30 + second + 5)
    assert bounds.environment_s == pytest.approx(35 + first)
    assert bounds.best == bounds.longest_chain_s


def test_without_a_cap_the_environment_bounds_nothing() -> None:
    model = small_model()
    workload, _, _, _ = prepare([trajectory("a", [(1, 30.0, 1), (1, None, 0)])], settings(), model)
    assert lower_bounds(workload, model, workers=1, environment_concurrency=None).environment_s == 0
    nothing, _, _, _ = prepare([trajectory("a", [(1, None, 0)])], settings(), model)
    assert lower_bounds(nothing, model, workers=1, environment_concurrency=3).environment_s == 0


def test_best_bound_is_the_largest() -> None:
    assert Bounds(longest_chain_s=1.0, environment_s=3.0, inference_s=2.0).best == 3.0


def test_completion_curve_steps_at_each_completion() -> None:
    assert completion_curve(outcome().completed_s, 4) == [
        (0.0, 0.0),
        (4.0, 0.0),
        (4.0, 0.25),
        (8.0, 0.25),
        (8.0, 0.5),
        (10.0, 0.5),
        (10.0, 0.75),
        (20.0, 0.75),
        (20.0, 1.0),
    ]
    assert completion_curve([3.0], 4)[-1] == (3.0, 0.25)
    assert completion_curve([], 4) == [(0.0, 0.0)]
    thinned = completion_curve([float(number) for number in range(5000)], 5000)
    assert len(thinned) < 1000
    assert thinned[-1] == (4999.0, 1.0)


def test_in_flight_is_averaged_over_each_bin() -> None:
    curves = in_flight_curves(CHANGES, 2, end_s=20.0, bins=4)
    assert curves == [
        [(2.5, 1.0), (7.5, 1.0), (12.5, 1.0), (17.5, 1.0)],
        [(2.5, 1.0), (7.5, 1.0), (12.5, 0.0), (17.5, 0.0)],
    ]
    assert total_curve(curves) == [(2.5, 2.0), (7.5, 2.0), (12.5, 1.0), (17.5, 1.0)]
    (partial, _) = in_flight_curves(
        [(1.0, 0, 1), (1.0, 1, 1), (1.0, 1, -1), (4.0, 0, -1)], 2, end_s=20.0, bins=4
    )
    assert partial[0] == (2.5, pytest.approx(0.6))
