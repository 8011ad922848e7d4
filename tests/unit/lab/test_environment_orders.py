"""Orders of the environment queue: each rule, on cases made by hand."""

from collections.abc import Sequence
from typing import get_args

import pytest
from simulated import outcome_of, settings, small_model, trajectory

from coresched.lab.simulator.environments.order import EnvironmentQueue
from coresched.lab.simulator.environments.registry import PLAIN_ENVIRONMENTS, environment_queue
from coresched.lab.simulator.settings import PlainEnvironment, RunSettings
from coresched.lab.simulator.workload import Workload, build_workload
from coresched.trajectory.schema import Environment, Trajectory, Turn

MODEL = small_model()


def jobs(name: str, *stages: tuple[str | None, float]) -> Trajectory:
    """A turn of 10 tokens before each of these (kind, seconds), and one after."""
    turns = [Turn(output_tokens=10, env=Environment(duration_s=s, kind=kind)) for kind, s in stages]
    return Trajectory(id=name, initial_prompt_tokens=50, turns=(*turns, Turn(output_tokens=10)))


def queue(batch: Sequence[Trajectory], **changes: object) -> tuple[EnvironmentQueue, Workload, RunSettings]:
    workload = build_workload(batch, page_tokens=1)
    run = settings(**changes)
    found = environment_queue(workload, run, MODEL.times)
    assert found is not None
    return found, workload, run


def order_of(waiting: EnvironmentQueue, asked: Sequence[tuple[int, int]]) -> list[int]:
    for sample, turn in asked:
        waiting.ask(sample, turn)
    return [waiting.take() for _ in asked]


def test_every_order_is_made() -> None:
    assert tuple(PLAIN_ENVIRONMENTS) == get_args(PlainEnvironment)


@pytest.mark.parametrize("policy", ["fcfs", "caas"])
def test_the_coordinators_own_orders_have_no_queue_before_it(policy: str) -> None:
    workload = build_workload([jobs("a", (None, 1.0))], page_tokens=1)
    assert environment_queue(workload, settings(environment_policy=policy), MODEL.times) is None


def test_sjf_takes_the_shortest_and_equal_ones_as_they_asked() -> None:
    batch = [jobs("long", (None, 9.0)), jobs("one", (None, 2.0)), jobs("two", (None, 2.0))]
    waiting, workload, _ = queue(batch, environment_policy="sjf")
    first = workload.first_turn
    assert order_of(waiting, [(0, first[0]), (2, first[2]), (1, first[1])]) == [2, 1, 0]


def test_sjf_expected_goes_by_the_nearest_jobs_that_have_ended() -> None:
    batch = [
        jobs("a", ("bash", 5.0), ("bash", 5.0), ("web", 5.0)),
        jobs("b", ("bash", 1.0), ("web", 1.0), ("web", 1.0)),
        jobs("c", ("bash", 3.0), ("python", 3.0)),
    ]
    waiting, workload, _ = queue(batch, environment_policy="sjf-expected")
    a, b, c = workload.first_turn[:3]
    waiting.ended(0, a, 5.0)
    # Nothing of c has ended, so its bash is expected to take what bash took, 5, as a's own does.
    assert order_of(waiting, [(0, a + 1), (2, c)]) == [0, 2]
    waiting.ended(1, b, 1.0)
    # Bash took 1 and 5, so 3 for c's; a's own was 5, b's web is expected from its own bash, 1.
    assert order_of(waiting, [(0, a + 1), (2, c), (1, b + 1)]) == [1, 2, 0]
    waiting.ended(1, b + 1, 1.0)
    # No python has ended, and nothing of c: all that has, 1, 1 and 5. Its own kind goes before a's own rest.
    assert order_of(waiting, [(0, a + 1), (2, c + 1), (1, b + 2)]) == [2, 1, 0]


def test_longest_remaining_counts_stages_and_turns_to_come() -> None:
    batch = [
        jobs("short", (None, 30.0)),
        jobs("long", (None, 1.0), (None, 30.0), (None, 30.0)),
        jobs("turns", *[(None, 0.0)] * 100),
    ]
    waiting, workload, _ = queue(batch, environment_policy="longest-remaining")
    short, long, turns = workload.first_turn[:3]
    assert order_of(waiting, [(0, short), (1, long)]) == [1, 0]
    assert order_of(waiting, [(1, long + 2), (0, short)]) == [1, 0]  # 30 s and one turn each: as they asked
    assert order_of(waiting, [(0, short), (2, turns)]) == [0, 2]
    alone_s = 10 * (MODEL.times.decode_step_s + MODEL.times.decode_sequence_s)
    assert 100 * alone_s < 30.0 < 200 * alone_s
    more = [*batch[:2], jobs("turns", *[(None, 0.0)] * 200)]
    waiting, workload, _ = queue(more, environment_policy="longest-remaining")
    assert order_of(waiting, [(0, short), (2, turns)]) == [2, 0]


def test_longest_remaining_errs_with_the_expectation_and_never_expects_nothing() -> None:
    batch = [jobs(f"t{number}", (None, 10.0), (None, 10.0)) for number in range(40)]
    asked = [(sample, 3 * sample + 1) for sample in range(40)]
    exact, *_ = queue(batch, environment_policy="longest-remaining")
    assert order_of(exact, asked) == list(range(40))
    noisy, *_ = queue(batch, environment_policy="longest-remaining", expectation_noise=1.0)
    assert order_of(noisy, asked) != list(range(40))
    assert sorted(order_of(noisy, asked)) == list(range(40))


@pytest.mark.parametrize("policy", PLAIN_ENVIRONMENTS)
def test_a_run_keeps_to_its_environment_slots(policy: str) -> None:
    batch = [trajectory(f"t{number}", [(5, 10.0 + number, 5), (5, None, 0)]) for number in range(4)]
    run = settings(environment_policy=policy, environment_concurrency=1)
    outcome = outcome_of(batch, run, MODEL)
    assert outcome.environment_s == 10.0 + 11.0 + 12.0 + 13.0
    assert outcome.completed_s[-1] > outcome.environment_s


def test_in_a_run_the_shortest_job_that_waits_is_next() -> None:
    # The first to ask runs; then the others wait, and go by their length.
    batch = [trajectory(f"t{s:g}", [(5, s, 5), (5, None, 0)]) for s in (10.0, 300.0, 200.0, 100.0)]
    sjf = outcome_of(batch, settings(environment_policy="sjf", environment_concurrency=1), MODEL)
    fcfs = outcome_of(batch, settings(environment_policy="fcfs", environment_concurrency=1), MODEL)
    rounded = [round(t, -1) for t in sjf.completed_s]
    assert rounded == [10.0, 110.0, 310.0, 610.0]
    assert [round(t, -1) for t in fcfs.completed_s] == [10.0, 310.0, 510.0, 610.0]
