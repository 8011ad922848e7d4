"""What is advised, and how it is judged."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import comb, inf
from pathlib import Path
from shlex import split

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from coresched.batch.history import write_history
from coresched.capacity.profile import profile_of
from coresched.cli.main import build_parser
from coresched.client.embedded import Batch
from coresched.client.gate.process import gate_options
from coresched.errors import InputError
from coresched.lab.advice.advice import Advice, advise
from coresched.lab.advice.judgement import interval, saving
from coresched.lab.advice.parts import (
    PARTS,
    Capacity,
    alternatives,
    given,
    nearby,
    part_of,
    together,
    with_part,
)
from coresched.lab.advice.recipe import recipe
from coresched.lab.advice.search import search, without_idle_changes
from coresched.lab.advice.trials import CONFIRMED, SEARCHED, Trials
from coresched.lab.simulator.model import load_worker_model
from coresched.lab.simulator.run import simulate
from coresched.lab.simulator.settings import LOAD_BOUNDED, ROUTERS, Routing, RunSettings
from coresched.trajectory.generator import generate
from coresched.trajectory.schema import Environment, Trajectory, Turn

MODEL = load_worker_model("h20-tp4-hybrid-tight")
SGLANG = "python -m sglang_router.launch_router"


def workload(count: int = 60) -> list[Trajectory]:
    return list(generate("swe", count, seed=11))


def settings(**changes: object) -> RunSettings:
    base = RunSettings(
        name="as it is",
        workers=2,
        sample_concurrency=4,
        environment_concurrency=4,
        state_ratio=0.9,
        label_capacity=40,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def advice() -> Advice:
    return advise(workload(), MODEL, workers=2, environment_concurrency=4)


def test_one_limit_for_samples_and_environments_is_taken_apart(advice: Advice) -> None:
    assert not advice.leave
    assert advice.as_it_is.settings.sample_concurrency == 4
    assert advice.advised.settings.sample_concurrency > 8
    assert advice.advised.saved.low > 0.2
    assert advice.advised.makespan_s.median <= advice.coordinated.makespan_s.median * 1.02
    assert "admission" in [change.part for change in advice.contributions]
    assert advice.advised.of_bound >= 1


def test_every_change_is_one_that_pays(advice: Advice) -> None:
    for change in advice.contributions:
        assert change.as_it_is != change.advised
        assert change.saved.median > 0


def test_a_change_that_pays_by_luck_in_the_search_is_not_advised() -> None:
    def stage(number: int, tokens: int) -> Environment:
        return Environment(duration_s=0.2 + 0.1 * (number % 4), response_tokens=tokens)

    batch = [
        Trajectory(
            id=f"task-{n}",
            initial_prompt_tokens=510,
            turns=(Turn(19, env=stage(n, 5)), Turn(37, env=stage(n, 10)), Turn(2)),
        )
        for n in range(8)
    ]
    model = load_worker_model("h20-tp4-hybrid")
    made = advise(batch, model, workers=2, environment_concurrency=2, as_it_is=["sample-concurrency=6"])
    assert [change.part for change in made.contributions] == ["admission"]


def test_what_was_advised_is_left_as_it_is(advice: Advice) -> None:
    chosen = [
        f"{name.replace('_', '-')}={value}"
        for part in PARTS
        for name, value in part_of(advice.advised.settings, part).items()
    ]
    again = advise(workload(), MODEL, workers=2, environment_concurrency=4, as_it_is=chosen)
    assert again.as_it_is.makespan_s == advice.advised.makespan_s
    assert again.leave


def test_the_search_never_ends_worse_than_where_it_began() -> None:
    trajectories = workload(20)
    trials = Trials(trajectories, MODEL)
    capacity = Capacity.of(profile_of(trajectories), MODEL)
    for start in (settings(), settings(worker_policy="lpm", routing="round-robin", sample_concurrency=20)):
        found = search([start], capacity, trials)
        assert trials.mean_s(found, CONFIRMED) <= trials.mean_s(start, CONFIRMED)
        kept = without_idle_changes(found, start, trials)
        for part in PARTS:
            assert part_of(kept, part) in (part_of(found, part), part_of(start, part))


def test_pools_that_are_too_small_for_a_trajectory_are_never_chosen() -> None:
    trials = Trials(workload(20), MODEL)
    assert trials.makespan_s(settings(state_ratio=1e-7), 1) == inf
    assert trials.mean_s(settings(state_ratio=1e-7), SEARCHED) == inf
    assert trials.mean_s(settings(), SEARCHED) < inf


def test_a_part_that_cannot_matter_has_no_alternatives() -> None:
    capacity = Capacity.of(profile_of(workload(20)), MODEL)
    alone = settings(workers=1, environment_concurrency=None)
    assert list(alternatives(alone, "routing", capacity, 20)) == []
    assert list(alternatives(alone, "environment", capacity, 20)) == []


@pytest.mark.parametrize("part", PARTS)
def test_alternatives_change_their_part_and_nothing_else(part: str) -> None:
    capacity = Capacity.of(profile_of(workload(20)), MODEL)
    now = settings()
    tried = list(alternatives(now, part, capacity, 20))
    assert len(set(tried)) == len(tried) > 2
    for one in tried:
        assert with_part(one, part, now) == now
        assert 1 <= one.sample_concurrency <= 20


@pytest.mark.parametrize("history", [False, True])
def test_all_at_once_is_each_estimate_under_each_pressure(history: bool) -> None:
    capacity = Capacity.of(profile_of(workload(20)), MODEL)
    now = settings()
    tried = list(together(now, capacity, 20, by_history=history))
    assert len(set(tried)) == len(tried)
    assert len({point.ratio for point in capacity.points}) >= 4
    assert {one.state_ratio for one in tried} == {point.ratio for point in capacity.points}
    assert {one.worker_policy for one in tried} == {"routing-prefix", "routing-residency"}
    assert ("longest-expected-first" in {one.admission_policy for one in tried}) == history
    for one in tried:
        least = min(20, 2 * next(p.concurrency for p in capacity.points if p.ratio == one.state_ratio))
        assert least <= one.sample_concurrency <= 20
        for part in ("routing", "environment"):
            assert part_of(one, part) == part_of(now, part)


def test_near_to_a_configuration_are_others_of_its_pools_and_samples() -> None:
    now = settings(sample_concurrency=18)
    tried = list(nearby(now, 20))
    assert now in tried
    assert {one.sample_concurrency for one in tried} == {15, 18, 20}
    for one in tried:
        assert replace(one, state_ratio=now.state_ratio, sample_concurrency=18) == now


def test_a_run_among_trials_is_the_run_alone() -> None:
    trajectories = workload(20)
    trials = Trials(trajectories, MODEL)
    for chosen in (settings(), settings(workers=1), settings(environment_concurrency=9)):
        for seed in (1, 2):
            alone = simulate(trajectories, replace(chosen, seed=seed), MODEL)
            found = trials.run(chosen, seed)
            assert (found.metrics.makespan_s, found.bounds) == (alone.metrics.makespan_s, alone.bounds)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sample-concurrency", "must be NAME=VALUE with a NAME of sample-concurrency, admission-policy"),
        ("workers=3", "must be NAME=VALUE"),
        ("sample-concurrency=many", "'many' is not a whole number; give one"),
        ("sample-concurrency=0", "sample_concurrency is 0; it must be from 1"),
        ("routing=best", "routing is 'best'; it must be one of round-robin"),
        ("environment-policy=sjf", "only a simulated batch has that"),
    ],
)
def test_what_is_set_today_is_checked(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        given(settings(), [text])


def test_only_with_a_history_the_longest_expected_may_go_first() -> None:
    capacity = Capacity.of(profile_of(workload(20)), MODEL)
    without = list(alternatives(settings(), "admission", capacity, 20))
    tried = list(alternatives(settings(), "admission", capacity, 20, by_history=True))
    assert {one.admission_policy for one in without} == {"submission"}
    assert tried == [*without, *(replace(one, admission_policy="longest-expected-first") for one in without)]


def test_an_order_by_history_comes_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a history.jsonl"
    write_history(path, {"a": 1.0}, "seconds", "history")
    chosen = settings(admission_policy="longest-expected-first")
    harness, environment = recipe(chosen, ["admission"], str(path))
    batch = eval(harness.text, {"coresched": __import__("coresched")})
    assert isinstance(batch, Batch)
    options = gate_options(dict(pair.split("=") for pair in split(environment.text)))
    assert options is not None
    assert (options["admission_policy"], options["history"]) == ("longest-expected-first", str(path))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_step_of_a_recipe_can_be_taken(workers: int) -> None:
    policies = ("fcfs", "lpm", "routing-prefix", "routing-residency")
    for order, routing, environment, limit in product(
        policies, ("cache-aware", "consistent-hash", "lbch", "sticky-bounded"), ("fcfs", "caas"), (None, 3)
    ):
        chosen = settings(
            workers=workers,
            worker_policy=order,
            routing=routing,
            environment_policy=environment,
            environment_concurrency=limit,
        )
        steps = {step.what: step.text for step in recipe(chosen, PARTS)}
        assert f"--schedule-policy {order}" in steps["on each worker"]
        assert ("CORESCHED_LABEL_CAPACITY=40" in steps["on each worker"]) == (order == "routing-prefix")
        if routing != "cache-aware":
            front = steps["in front of the workers"]
            arguments = build_parser().parse_args(front.replace(" ...", "").split()[1:])
            assert arguments.load_bound == (1e6 if routing == "consistent-hash" else 1.25)
            assert arguments.router == ("sticky-bounded" if routing == "sticky-bounded" else "lbch")
        batch = eval(steps["in the harness"], {"coresched": __import__("coresched")})
        assert isinstance(batch, Batch)
        pairs = steps["or, for the adapters of harnesses, in the environment"].split()
        options = gate_options(dict(pair.split("=") for pair in pairs))
        assert options is not None
        assert options["sample_concurrency"] == 4
        assert options.get("environment_concurrency") == limit


@pytest.mark.parametrize(
    ("routing", "command"),
    [
        ("sticky-least-loaded", "vllm-router --port 8080 --policy sticky_least_loaded --worker-urls"),
        (
            "power-of-two",
            "python -m sglang_router.launch_router --port 8080 --policy power_of_two --worker-urls",
        ),
        (
            "cache-aware",
            "python -m sglang_router.launch_router --port 8080 --policy cache_aware --worker-urls",
        ),
    ],
)
def test_a_router_of_another_project_is_named_as_such(routing: str, command: str) -> None:
    (step,) = recipe(settings(routing=routing), ["routing"])
    assert "no router of coresched" in step.what
    assert step.text == f"{command} http://WORKER0:30000 http://WORKER1:30000"
    assert ("/finish_session" in step.what) == (routing == "sticky-least-loaded")


def test_every_router_that_is_tried_can_be_started() -> None:
    capacity = Capacity.of(profile_of(workload(20)), MODEL)
    tried = {one.routing for one in alternatives(settings(), "routing", capacity, 20)}
    assert {"lbch", "sticky-bounded", "sticky-least-loaded", "power-of-two"} <= tried
    for routing in tried:
        (step,) = recipe(settings(routing=routing), ["routing"])
        assert step.text.startswith(("coresched gateway", "vllm-router", "python -m sglang_router"))


@pytest.mark.parametrize("routing", ROUTERS)
def test_a_load_bound_is_told_of_the_routers_that_have_one(routing: Routing) -> None:
    assert ("load_bound" in part_of(settings(routing=routing), "routing")) == (routing in LOAD_BOUNDED)


def test_only_what_changes_is_a_step() -> None:
    assert recipe(settings(), []) == []
    assert [step.what for step in recipe(settings(), ["order"])] == ["on each worker"]


@drawn(st.lists(st.floats(0, 100), min_size=6, max_size=40))
def test_the_interval_covers_the_median_with_its_confidence(values: list[float]) -> None:
    found, count = interval(values), len(values)
    ordered = sorted(values)
    assert found.low <= found.median <= found.high
    place = next(k for k in range(count) if ordered[k] == found.low)
    outside = 2 * sum(Fraction(comb(count, k), 2**count) for k in range(place + 1))
    assert outside <= Fraction(5, 100) or ordered.count(found.low) > 1
    if len(set(values)) == count:
        next_in = 2 * sum(Fraction(comb(count, k), 2**count) for k in range(place + 2))
        assert next_in > Fraction(5, 100)
        assert found.high == ordered[count - 1 - place]


def test_savings_are_paired() -> None:
    reference = [100.0, 200.0, 300.0, 400.0, 500.0, 600.0]
    found = saving([90.0, 180.0, 270.0, 360.0, 450.0, 540.0], reference)
    assert (found.low, found.median, found.high) == pytest.approx((0.1, 0.1, 0.1))


def test_a_model_without_room_is_said_before_any_run() -> None:
    tiny = msgspec.structs.replace(MODEL, pool_tokens=2000)
    with pytest.raises(InputError, match="not one trajectory"):
        advise(workload(5), tiny, workers=1, environment_concurrency=None)
