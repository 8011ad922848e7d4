"""Other projects' admission: each rule, on cases made by hand."""

from typing import Any, get_args

import pytest
from simulated import outcome_of, settings, small_model, trajectory
from stepped_workers import TwinDeployment

from coresched.lab.simulator.admissions.gate import Workers
from coresched.lab.simulator.admissions.pause_resume import BUFFER_TOKENS, PauseResume
from coresched.lab.simulator.admissions.prefix_groups import prefix_groups
from coresched.lab.simulator.admissions.registry import BATCH_ORDERS, TURN_GATES
from coresched.lab.simulator.lockstep.run import simulate_in_lockstep
from coresched.lab.simulator.settings import PlainAdmission
from coresched.lab.simulator.workload import build_workload
from coresched.trajectory.schema import Trajectory

ROOM = 1_000
"""KV tokens of a worker of `gate`."""


def one(name: str, output: int = 10, prompt: int = 100, **fields: Any) -> Trajectory:
    return trajectory(name, [(output, None, 0)], prompt=prompt, **fields)


def gate(*batch: Trajectory, workers: int = 1) -> PauseResume:
    workload = build_workload(batch or [one(f"t{number}") for number in range(9)], page_tokens=1)
    return PauseResume(Workers(workload, workers, ROOM))


def admitted(held: PauseResume, *prompts: int) -> list[bool]:
    """Each of these samples asks for its first turn, and gets to worker 0 if it may."""
    answers = []
    for sample, prompt in enumerate(prompts):
        answers.append(held.ask(sample, prompt, 0.0))
        if answers[-1]:
            held.placed(sample, 0)
    return answers


def test_every_admission_is_made() -> None:
    assert (*BATCH_ORDERS, *TURN_GATES) == get_args(PlainAdmission)


def order(*batch: Trajectory, **changes: Any) -> list[str]:
    workload = build_workload(batch, page_tokens=1)
    return [workload.labels[sample] for sample in prefix_groups(workload, settings(**changes))]


def test_prefix_groups_are_together_and_go_by_decoding_over_prefill() -> None:
    a = {"group": "a", "shared_prefix_tokens": 80}
    b = {"group": "b", "shared_prefix_tokens": 80}
    batch = [one("a1", 10, **a), one("b1", 30, **b), one("a2", 20, **a), one("b2", 30, **b)]
    # a: 30 over 80 + 20 + 20; b: 60 over the same.
    assert order(*batch) == ["b1", "b2", "a1", "a2"]
    # One alone of 30 over 100 is above a, and below b.
    assert order(*batch, one("alone", 30)) == ["b1", "b2", "alone", "a1", "a2"]
    # Counted twice, the shared tokens would put a group of 55 over 200 below 30 over 100: it is 55 over 120.
    c = {"group": "c", "shared_prefix_tokens": 80}
    assert order(one("alone", 30), one("c1", 25, **c), one("c2", 30, **c)) == ["c1", "c2", "alone"]


def test_prefix_groups_prefill_what_no_earlier_turn_left_in_the_cache() -> None:
    # 100 + 10 responses over 40 replies, against 100 over 37.
    twice = trajectory("twice", [(20, 1.0, 10), (20, None, 0)], prompt=100)
    assert order(twice, one("once", 37)) == ["once", "twice"]
    assert order(twice, one("once", 36)) == ["twice", "once"]


def test_prefix_groups_err_with_the_expectation() -> None:
    batch = [one(f"t{number:02}", 100 - number) for number in range(30)]
    assert order(*batch) == [each.id for each in batch]
    assert order(*batch, expectation_noise=1.0) != [each.id for each in batch]


def test_a_new_trajectory_waits_until_it_fits_and_nobody_waits_before_it() -> None:
    held = gate()
    assert admitted(held, 500, 500, 10) == [True, False, False]  # 500 + 100, then 600 more, then one waits
    assert held.check(5.0) == [2]
    held.placed(2, 0)
    held.ended(0, 510)
    assert held.check(10.0) == []
    held.finished(0)
    assert held.check(15.0) == [1]


def test_over_capacity_the_smallest_that_act_are_paused_then_those_in_a_turn_marked() -> None:
    held = gate()
    assert admitted(held, 200, 150, 100) == [True, True, True]  # 750 with buffers
    held.ended(0, 300)
    held.ended(1, 200)
    assert held.check(5.0) == []
    assert held.ask(1, 250, 6.0)  # 950
    held.placed(1, 0)
    held.ended(1, 360)
    # 360 + 300 + 100 and buffers are 1060: of 0 and 1, which act, the smaller is paused.
    held.check(10.0)
    assert not held.ask(0, 310, 11.0)
    assert held.ask(1, 700, 11.0)
    held.placed(1, 0)
    # 700 and 100 and buffers fill it; nobody acts and it is not over.
    assert held.check(15.0) == []
    held.ended(1, 760)
    held.ask(1, 790, 16.0)
    held.placed(1, 0)
    # 790 + 100 and buffers: both in a turn; 2, the smaller, is marked and paused when its turn ends.
    assert held.check(20.0) == []
    held.ended(2, 105)
    assert not held.ask(2, 106, 21.0)
    held.finished(1)
    # Then both fit again, 310 and 106, the larger first.
    assert held.check(25.0) == [0, 2]


def test_who_has_a_turn_is_resumed_before_new_ones_and_those_before_who_acts() -> None:
    held = gate()
    assert admitted(held, 300, 200, 100) == [True, True, True]  # 900
    held.ended(0, 600)
    held.ended(1, 200)
    held.ended(2, 300)
    held.check(5.0)  # 1400: 1, then 2 are paused
    assert not held.ask(3, 150, 6.0)
    assert not held.ask(1, 205, 6.0)
    # Room of 300, 305 needed: not 1. New 3 needs 250; then 50 is left, so not 2, which acts.
    assert held.check(10.0) == [3]
    held.placed(3, 0)
    held.finished(3)
    held.finished(0)
    assert held.check(15.0) == [1]  # 2 as well, but it has no turn to send
    assert held.ask(2, 310, 16.0)


def test_the_largest_of_those_chosen_is_placed_first_where_most_room_is() -> None:
    held = gate(workers=2)
    assert admitted(held, 700, 750, 10) == [True, True, True]
    # All were routed to worker 0, and count there, 1760: the smallest are marked till it is no longer over.
    held.check(5.0)
    held.ended(2, 20)
    held.ended(0, 710)
    assert not held.ask(2, 25, 6.0)
    assert not held.ask(0, 720, 6.0)
    assert held.check(10.0) == [0, 2]
    held.placed(0, 1)
    held.placed(2, 0)
    assert held.check(15.0) == []
    held.ended(0, 730)
    assert held.ask(0, 740, 16.0)  # not paused: each fits where it is


def test_a_prefix_shared_in_a_group_counts_once_on_a_worker() -> None:
    shared = {"group": "g", "shared_prefix_tokens": 300}
    held = gate(*[one(f"t{number}", prompt=350, **shared) for number in range(4)])
    assert admitted(held, 350, 350) == [True, True]  # 300 + 2 * (50 + 100), and room of 400
    held.ended(0, 750)
    held.check(5.0)
    assert held.ask(0, 751, 6.0)  # 300 + 450 + 50 + 200 did fit
    held.placed(0, 0)
    held.check(10.0)
    held.ended(1, 360)
    assert not held.ask(1, 370, 11.0)  # with one more they did not, so the smaller was marked
    alone = gate(*[one(f"t{number}", prompt=350) for number in range(3)])
    assert admitted(alone, 350, 350, 350) == [True, True, False]


def test_a_turn_held_for_half_an_hour_is_sent_whatever_the_room() -> None:
    held = gate()
    assert admitted(held, ROOM - BUFFER_TOKENS, 950) == [True, False]
    assert held.check(1795.0) == []
    assert held.check(1800.0) == [1]


def test_a_run_under_pauses_is_the_same_on_stepped_workers_and_recomputes_less() -> None:
    turns: list[tuple[int, float | None, int]] = [(40, 2.0, 200)] * 6
    batch = [trajectory(f"t{number:02}", [*turns, (10, None, 0)], prompt=300) for number in range(30)]
    model = small_model()

    def run(policy: str) -> Any:
        return settings(sample_concurrency=30, admission_policy=policy)

    paused = outcome_of(batch, run("pause-resume"), model)
    plain = outcome_of(batch, run("submission"), model)
    assert paused.new_prefill_tokens < plain.new_prefill_tokens
    assert len(paused.completed_s) == 30
    stepped = simulate_in_lockstep(batch, run("pause-resume"), TwinDeployment(model)).outcome
    assert stepped.completed_s == pytest.approx(paused.completed_s)
