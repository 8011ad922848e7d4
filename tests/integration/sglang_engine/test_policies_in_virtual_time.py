"""SGLang's real scheduler under each policy, in virtual time: reuse, makespan, order and repeatability."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from coresched_simdevice.virtual.order import OrderError, PrefixChecker, check_all
from coresched_simdevice.virtual.passes import PrefixPass, read_passes

from bench.sglang_policies.policies import Policy
from bench.sglang_policies.processes import Run, carry_out_all
from bench.sglang_policies.setups import LONG_QUEUE, SHORT_QUEUE, SetUp

pytestmark = pytest.mark.sglang

Results = dict[str, dict[str, Any]]

REAL_SECONDS = ("priority_calculation_s", "batching_s")
STATE_SLOTS = 64
"""What C_A is where it is not given."""
LITTLE_KV_LABELS = 24


def shorter(setup: SetUp) -> SetUp:
    return replace(setup, turns=4, initial_prompt_tokens=5_000, output_tokens=16, response_tokens=600)


SHORT = replace(shorter(SHORT_QUEUE), samples=64)
LONG = shorter(LONG_QUEUE)
# Less KV than the running requests may come to need, and a long prompt takes several steps.
LITTLE_KV = replace(SHORT_QUEUE, samples=32, sample_concurrency=24, turns=3, initial_prompt_tokens=2_000)
RUNS = {
    "short fcfs": Run(SHORT, "qwen3-next-80b-a3b", Policy("fcfs")),
    "short lpm": Run(SHORT, "qwen3-next-80b-a3b", Policy("lpm")),
    "short routing-prefix": Run(SHORT, "qwen3-next-80b-a3b", Policy("routing-prefix")),
    "long lpm": Run(LONG, "ling-3.0-flash", Policy("lpm")),
    "long dfs-weight": Run(LONG, "ling-3.0-flash", Policy("dfs-weight")),
    "long routing-prefix": Run(LONG, "ling-3.0-flash", Policy("routing-prefix")),
    "long routing-prefix again": Run(LONG, "ling-3.0-flash", Policy("routing-prefix")),
    "little KV": Run(
        replace(LITTLE_KV, output_tokens=300), "ling-3.0-flash", Policy("routing-prefix", LITTLE_KV_LABELS)
    ),
}


@pytest.fixture(scope="module")
def passes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each run of routing-prefix leaves its passes, under the run's name."""
    return tmp_path_factory.mktemp("passes")


@pytest.fixture(scope="module")
def results(sglang_python: Path, passes: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    jobs = {}
    for name, run in RUNS.items():
        job = jobs[name] = run.job(tmp_path_factory.mktemp("models"))
        # More than 64 trajectories need. SGLang copies the list of free tokens again and again.
        job["server_args"]["max_total_tokens"] = 800_000
        if run.policy.name == "routing-prefix":
            job["passes"] = str(passes / name)
    jobs["little KV"]["settings"]["reserve_output"] = False
    jobs["little KV"]["server_args"] |= {
        "max_total_tokens": 14_000,
        "schedule_conservativeness": 0.05,
        "chunked_prefill_size": 1_024,
    }
    return dict(carry_out_all(str(sglang_python), jobs))


def test_routing_prefix_reuses_as_much_as_the_best_and_fcfs_far_less(results: Results) -> None:
    fcfs, lpm, ours = (results[f"short {name}"] for name in ("fcfs", "lpm", "routing-prefix"))
    assert ours["cache_reuse"] >= lpm["cache_reuse"] - 0.002 > 0.6
    assert ours["later_turns_without_hit"] == lpm["later_turns_without_hit"] == 0
    assert fcfs["cache_reuse"] < 0.5 * ours["cache_reuse"]
    assert fcfs["makespan_s"] > 1.2 * ours["makespan_s"]
    assert ours["makespan_s"] < 1.02 * lpm["makespan_s"]


def test_lpm_gives_up_above_128_waiting_and_routing_prefix_does_not(results: Results) -> None:
    lpm, dfs, ours = (results[f"long {name}"] for name in ("lpm", "dfs-weight", "routing-prefix"))
    assert ours["cache_reuse"] >= dfs["cache_reuse"] - 0.002 > 0.6
    assert ours["makespan_s"] < 1.02 * dfs["makespan_s"]
    assert lpm["cache_reuse"] < 0.5 * ours["cache_reuse"]
    assert lpm["makespan_s"] > 1.2 * ours["makespan_s"]


def test_all_that_was_asked_for_is_computed_once(results: Results) -> None:
    for name, run in RUNS.items():
        result, trajectories = results[name], run.setup.trajectories(run.seed)
        assert result["input_tokens"] == sum(sum(each.prompt_tokens()) for each in trajectories)
        assert result["turns"] == sum(len(each.turns) for each in trajectories)
        assert (result["recomputed_tokens"] > 0) == (name == "little KV")


def test_two_runs_are_equal_on_every_number(results: Results, passes: Path) -> None:
    first, second = (
        {key: value for key, value in results[name].items() if key not in REAL_SECONDS}
        for name in ("long routing-prefix", "long routing-prefix again")
    )
    assert first == second
    records = [(passes / name).read_bytes() for name in ("long routing-prefix", "long routing-prefix again")]
    assert records[0] == records[1]


@pytest.mark.parametrize(
    ("name", "label_capacity"),
    [
        ("short routing-prefix", STATE_SLOTS),
        ("long routing-prefix", STATE_SLOTS),
        ("little KV", LITTLE_KV_LABELS),
    ],
)
def test_every_pass_is_that_of_the_specification(
    results: Results, passes: Path, name: str, label_capacity: int
) -> None:
    run = prefix_passes(passes / name)
    assert check_all(PrefixChecker(label_capacity), run) == results[name]["scheduling_passes"] > 100
    assert sum(len(one.admitted) for one in run) == results[name]["turns"] + results[name]["retractions"]
    assert any(order_before(one) != one.ordered for one in run)


def test_the_proof_has_chunked_prefill_and_retraction_in_it(results: Results, passes: Path) -> None:
    run = prefix_passes(passes / "little KV")
    assert sum(bool(one.continued) for one in run) > 20
    assert results["little KV"]["retractions"] > 0


@pytest.mark.parametrize(
    "fault",
    [
        lambda one: msgspec.structs.replace(one, ordered=one.ordered[:-2] + one.ordered[:-3:-1]),
        lambda one: msgspec.structs.replace(one, asked=one.asked[1:]),
        lambda one: msgspec.structs.replace(one, labels=one.labels[::-1]),
        lambda one: msgspec.structs.replace(one, admitted=one.ordered[-1:]),
    ],
    ids=["order", "hits asked", "label set", "admission"],
)
def test_a_doctored_record_is_found(
    results: Results, passes: Path, fault: Callable[[PrefixPass], PrefixPass]
) -> None:
    run = prefix_passes(passes / "long routing-prefix")
    places = [place for place, one in enumerate(run) if one.asked and one.admitted and len(one.ordered) > 2]
    for place in places[:: max(1, len(places) // 10)]:
        doctored = [*run[:place], fault(run[place]), *run[place + 1 :]]
        with pytest.raises(OrderError, match=f"pass {place + 1}: "):
            check_all(PrefixChecker(STATE_SLOTS), doctored)


def prefix_passes(path: Path) -> list[PrefixPass]:
    return [one for one in read_passes(path) if isinstance(one, PrefixPass)]


def order_before(one: PrefixPass) -> tuple[str, ...]:
    return tuple(each.id for each in one.waiting)
