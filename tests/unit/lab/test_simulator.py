"""The simulator on cases small enough to compute by hand, and on equalities that policies must obey."""

from dataclasses import replace
from math import ceil, log
from statistics import mean, stdev

import msgspec
import pytest
from simulated import free_scheduling, outcome_of, settings, small_model, trajectory

from coresched.errors import InputError
from coresched.lab.simulator.expectations import expected_lengths, lengths_alone_s
from coresched.lab.simulator.run import simulate
from coresched.lab.simulator.workload import build_workload
from coresched.trajectory.generator import generate

MODEL = small_model()
TIMES = MODEL.times


def prefill_s(new: int, cached: int = 0, requests: int = 1) -> float:
    return (
        TIMES.prefill_batch_s
        + TIMES.prefill_request_s * requests
        + TIMES.prefill_token_s * new
        + TIMES.prefill_attended_token_s * new * (cached + new / 2)
    )


def decode_s(context: int, steps: int, sequences: int = 1) -> float:
    """``steps`` steps one by one, beginning with ``context`` tokens in all sequences together."""
    return sum(
        TIMES.decode_step_s
        + TIMES.decode_sequence_s * sequences
        + TIMES.decode_context_token_s * (context + sequences * step)
        for step in range(steps)
    )


def turnaround_s(prompt: int) -> float:
    return TIMES.turnaround_s + TIMES.turnaround_token_s * prompt


def test_one_turn_takes_turnaround_prefill_and_decode_step_by_step() -> None:
    outcome = outcome_of([trajectory("a", [(30, None, 0)], prompt=100)], settings(), MODEL)
    assert outcome.completed_s == pytest.approx([turnaround_s(100) + prefill_s(100) + decode_s(101, 29)])
    assert outcome.new_prefill_tokens == 100


def test_a_single_output_token_needs_no_decode_step() -> None:
    outcome = outcome_of([trajectory("a", [(1, None, 0)], prompt=100)], settings(), MODEL)
    assert outcome.completed_s == pytest.approx([turnaround_s(100) + prefill_s(100)])
    assert outcome.decode_steps == 0


def test_second_turn_computes_only_what_is_new() -> None:
    outcome = outcome_of([trajectory("a", [(10, 2.5, 40), (20, None, 0)], prompt=100)], settings(), MODEL)
    first = turnaround_s(100) + prefill_s(100) + decode_s(101, 9)
    second = turnaround_s(150) + prefill_s(40, cached=110) + decode_s(151, 19)
    assert outcome.completed_s == pytest.approx([first + 2.5 + second])
    assert outcome.new_prefill_tokens == 140
    assert outcome.environment_s == 2.5


def test_a_reply_that_is_not_kept_leaves_only_its_prompt_reusable() -> None:
    kept = trajectory("a", [(10, 0.0, 40), (1, None, 0)], prompt=100)
    first, second = kept.turns
    dropped = msgspec.structs.replace(kept, turns=(msgspec.structs.replace(first, kept_tokens=4), second))
    assert outcome_of([dropped], settings(), MODEL).new_prefill_tokens == 100 + 44


def test_long_prompt_is_prefilled_in_chunks() -> None:
    outcome = outcome_of([trajectory("a", [(1, None, 0)], prompt=600)], settings(), MODEL)
    chunks = [256, 256, 88]
    attended = sum(size * (sum(chunks[:number]) + size / 2) for number, size in enumerate(chunks))
    expected = (
        3 * TIMES.prefill_batch_s
        + TIMES.prefill_request_s
        + 600 * TIMES.prefill_token_s
        + attended * TIMES.prefill_attended_token_s
    )
    assert outcome.completed_s == pytest.approx([turnaround_s(600) + expected])


def test_sequences_beyond_the_knee_have_their_own_price() -> None:
    times = msgspec.structs.replace(TIMES, decode_knee_sequences=1, turnaround_token_s=0.0)
    model = small_model(times=times)
    outcome = outcome_of([trajectory(name, [(11, None, 0)], prompt=10) for name in "ab"], settings(), model)
    step = times.decode_step_s + times.decode_sequence_s + times.decode_sequence_beyond_knee_s
    context = sum(times.decode_context_token_s * (22 + 2 * number) for number in range(10))
    # Both reach the idle worker together, but the first is prefilled alone.
    first_prefill, second_prefill = prefill_s(10), prefill_s(10)
    assert outcome.completed_s[-1] == pytest.approx(
        times.turnaround_s + first_prefill + second_prefill + 10 * step + context, rel=1e-6
    )


def test_one_sample_at_a_time_equals_the_serial_sum() -> None:
    batch = list(generate("terminal", 12, 3))
    model = small_model(pool_tokens=4_000_000)
    alone = [outcome_of([each], settings(), model).completed_s[-1] for each in batch]
    together = outcome_of(batch, settings(sample_concurrency=1), model)
    assert together.completed_s[-1] == pytest.approx(sum(alone))


def test_environment_slots_are_a_queue() -> None:
    batch = [trajectory(name, [(1, 10.0, 5), (1, None, 0)]) for name in "abcd"]
    one = outcome_of(batch, settings(environment_concurrency=1), MODEL)
    free = outcome_of(batch, settings(), MODEL)
    assert 40 < one.completed_s[-1] < 42
    assert 10 < free.completed_s[-1] < 12


def test_caas_serves_the_deeper_trajectory_first() -> None:
    # "deep" asks for the only slot twice: at once, and again while "block" holds it, behind "shallow".
    deep = trajectory("deep", [(1, 0.1, 1), (60, 9.0, 1), (1, None, 0)])
    block = trajectory("block", [(10, 50.0, 1), (1, None, 0)])
    shallow = trajectory("shallow", [(20, 2.0, 1), (1, None, 0)])
    ends = {}
    for policy in ("fcfs", "caas"):
        run = settings(environment_concurrency=1, environment_policy=policy, band_s=1000.0)
        ends[policy] = outcome_of([deep, block, shallow], run, MODEL).completed_s
    # The slot is free again at about 51 s; then 2 s + 9 s, or 9 s + 2 s.
    assert [round(end - 51) for end in ends["fcfs"]] == [0, 2, 11]
    assert [round(end - 51) for end in ends["caas"]] == [0, 9, 11]


def test_caas_with_a_tiny_band_is_fcfs() -> None:
    batch = list(generate("terminal", 30, 1))
    # One request at a time, so that no two jobs are requested at the same instant.
    model = small_model(pool_tokens=4_000_000, max_running_requests=1)
    run = {"environment_concurrency": 2, "sample_concurrency": 20}
    fcfs = outcome_of(batch, settings(environment_policy="fcfs", **run), model)
    assert outcome_of(batch, settings(environment_policy="caas", band_s=1e-6, **run), model) == fcfs


def test_with_enough_memory_policies_differ_by_their_own_cost_only() -> None:
    batch = list(generate("terminal", 30, 2))
    model = free_scheduling(small_model(pool_tokens=20_000_000))
    outcomes = [
        outcome_of(batch, settings(worker_policy=policy, sample_concurrency=30, label_capacity=30), model)
        for policy in ("fcfs", "lpm", "dfs-weight", "routing-prefix")
    ]
    assert len({outcome.new_prefill_tokens for outcome in outcomes}) == 1
    assert outcomes[0].evictions == 0


def test_routers_agree_on_one_worker() -> None:
    batch = list(generate("terminal", 20, 4))
    model = small_model(pool_tokens=400_000)
    outcomes = [
        outcome_of(batch, settings(routing=routing), model)
        for routing in ("round-robin", "cache-aware", "consistent-hash", "lbch")
    ]
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_lbch_without_a_bound_is_consistent_hashing() -> None:
    batch = list(generate("terminal", 40, 5))
    model = small_model(pool_tokens=2_000_000)
    run = {"workers": 3, "sample_concurrency": 40}
    hashed = outcome_of(batch, settings(routing="consistent-hash", **run), model)
    assert outcome_of(batch, settings(routing="lbch", load_bound=1e6, **run), model) == hashed
    assert hashed.migrations == 0


def test_lbch_is_better_balanced_than_hashing_alone() -> None:
    batch = list(generate("terminal", 120, 6))
    model = small_model(pool_tokens=4_000_000)
    run = {"workers": 3, "sample_concurrency": 60, "environment_concurrency": None}
    imbalance = {
        routing: simulate(
            batch, settings(routing=routing, **run), model, absent_environment_s=1.0
        ).metrics.request_imbalance
        for routing in ("consistent-hash", "lbch")
    }
    assert imbalance["lbch"] < imbalance["consistent-hash"]


def test_routing_prefix_keeps_the_cache_where_fcfs_loses_it() -> None:
    batch = [
        trajectory(f"t{number}", [(5, 0.0, 5)] * 12 + [(5, None, 0)], prompt=300) for number in range(40)
    ]
    # Room for about 12 trajectories, 40 admitted.
    reuse = {
        policy: simulate(
            batch, settings(worker_policy=policy, sample_concurrency=40, label_capacity=10), MODEL
        ).metrics
        for policy in ("fcfs", "routing-prefix")
    }
    assert reuse["routing-prefix"].cache_reuse > reuse["fcfs"].cache_reuse + 0.2
    assert reuse["routing-prefix"].makespan_s < reuse["fcfs"].makespan_s


def test_longest_prefix_match_gives_up_beyond_128_waiting() -> None:
    batch = [trajectory(f"t{number}", [(3, 0.0, 3)] * 3 + [(1, None, 0)], prompt=40) for number in range(400)]
    run = {"worker_policy": "lpm", "sample_concurrency": 400}
    crowded = simulate(batch, settings(**run), small_model(max_running_requests=4)).metrics
    fcfs = simulate(batch, settings(sample_concurrency=400), small_model(max_running_requests=4)).metrics
    calm = simulate(batch[:100], settings(**run), small_model(max_running_requests=4)).metrics
    assert fcfs.priority_calculation_s == 0
    assert crowded.priority_calculation_s > 0
    assert crowded.priority_calculation_s / len(batch) < calm.priority_calculation_s / 100


def test_shared_prefix_is_stored_once() -> None:
    model = small_model(pool_tokens=4_000, request_state_tokens=30)
    room = 2_000
    prompts = ceil(room * 0.6)
    alone = [trajectory(name, [(1, 0.0, 1), (1, None, 0)], prompt=prompts) for name in "ab"]
    shared = [msgspec.structs.replace(each, shared_prefix_tokens=prompts - 10) for each in alone]
    assert outcome_of(alone, settings(), model).evictions > 0
    assert outcome_of(shared, settings(), model).evictions == 0


def test_whole_pages_are_taken() -> None:
    # 4000 KV tokens are 4 pages of 1000: four one-page trajectories stay cached, a fifth evicts one.
    model = small_model(pool_tokens=8_000, request_state_tokens=30, page_tokens=1000)
    batch = [trajectory(f"t{number}", [(1, 0.0, 1), (1, None, 0)], prompt=10) for number in range(5)]
    assert outcome_of(batch[:4], settings(), model).evictions == 0
    assert outcome_of(batch, settings(), model).evictions > 0


def test_the_same_run_twice_is_the_same_and_another_seed_is_another_run() -> None:
    batch = list(generate("terminal", 40, 9))
    model = small_model(pool_tokens=1_000_000)
    run = settings(workers=2, routing="lbch", environment_concurrency=3)
    once = outcome_of(batch, run, model)
    assert outcome_of(batch, run, model) == once
    assert (
        outcome_of(batch, settings(workers=2, routing="lbch", environment_concurrency=3, seed=5), model)
        != once
    )


def test_a_trajectory_that_no_worker_can_hold_is_refused_by_name() -> None:
    with pytest.raises(
        InputError, match=r"'big': turns\[1\] needs 7051 KV tokens but a worker's KV pool holds 6000"
    ):
        simulate([trajectory("big", [(1, 0.0, 7000), (1, None, 0)], prompt=49)], settings(), MODEL)


def test_a_ratio_that_leaves_no_state_slots_is_refused() -> None:
    with pytest.raises(InputError, match=r"state_ratio is 0\.01; it leaves 1 state slots"):
        simulate([trajectory("a", [(1, None, 0)])], settings(state_ratio=0.01), MODEL)


def test_an_unrecorded_duration_is_refused_or_assumed() -> None:
    batch = [trajectory("a", [(1, 0.0, 1), (1, None, 0)])]
    first, last = batch[0].turns
    assert first.env is not None
    unknown = msgspec.structs.replace(first, env=msgspec.structs.replace(first.env, duration_s=None))
    batch = [msgspec.structs.replace(batch[0], turns=(unknown, last))]
    with pytest.raises(
        InputError, match=r"'a': turns\[0\]\.env\.duration_s is absent; .*--absent-environment-s"
    ):
        simulate(batch, settings(), MODEL)
    assert simulate(batch, settings(), MODEL, absent_environment_s=7.0).metrics.environment_s == 7.0


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(InputError, match=r"'z': the prompt of turns\[0\] has 0 tokens"):
        simulate([trajectory("z", [(100, 1.0, 0), (100, None, 0)], prompt=0)], settings(), MODEL)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(InputError, match="no trajectory"):
        simulate([], settings(), MODEL)


def test_progress_is_reported_and_never_goes_back() -> None:
    batch = list(generate("swe", 400, 1))
    seen: list[int] = []
    simulate(batch, settings(sample_concurrency=20), small_model(pool_tokens=4_000_000), progress=seen.append)
    assert seen
    assert seen == sorted(seen)
    assert seen[-1] < 400


def test_a_long_sample_that_is_expected_begins_first() -> None:
    batch = [trajectory(f"short-{number}", [(5, 1.0, 0), (5, None, 0)]) for number in range(4)]
    batch.append(trajectory("long", [(5, 1.0, 0)] * 12 + [(5, None, 0)]))
    run = settings(sample_concurrency=2)
    by_submission = outcome_of(batch, run, small_model())
    longest_first = outcome_of(batch, replace(run, admission_policy="longest-expected-first"), small_model())
    assert longest_first.completed_s[-1] < by_submission.completed_s[-1]


def test_what_is_expected_is_the_length_but_for_the_noise() -> None:
    batch = [trajectory(f"t{number}", [(5 + number, None, 0)]) for number in range(400)]
    model = small_model()
    workload = build_workload(batch, page_tokens=1)
    run = settings(admission_policy="longest-expected-first", seed=3)
    lengths = expected_lengths(workload, run, model.times)
    assert lengths == lengths_alone_s(workload, model.times) == sorted(lengths)
    noisy = replace(run, expectation_noise=0.6)
    guesses = expected_lengths(workload, noisy, model.times)
    assert guesses == expected_lengths(workload, noisy, model.times)
    assert guesses != expected_lengths(workload, replace(noisy, seed=4), model.times)
    errors = [log(guess / length) for guess, length in zip(guesses, lengths, strict=True)]
    assert abs(mean(errors)) < 0.1
    assert 0.5 < stdev(errors) < 0.7
    assert set(expected_lengths(workload, settings(), model.times)) == {None}


@pytest.mark.parametrize("noise", [-0.1, float("nan"), 11.0])
def test_a_noise_out_of_range_is_refused(noise: float) -> None:
    with pytest.raises(InputError, match=r"expectation_noise is .* it must be from 0 to 10"):
        settings(expectation_noise=noise)
