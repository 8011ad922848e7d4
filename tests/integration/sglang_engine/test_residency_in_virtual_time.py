"""routing-residency in SGLang's real scheduler, in virtual time: reuse without C_A, guard, order proof."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from coresched_simdevice.virtual.order import OrderError, check_all
from coresched_simdevice.virtual.passes import Held, ResidencyPass, Slots, read_passes
from coresched_simdevice.virtual.residency_order import ResidencyChecker

from bench.sglang_policies.policies import Policy
from bench.sglang_policies.processes import Run, carry_out_all
from bench.sglang_policies.setups import SHORT_QUEUE

pytestmark = pytest.mark.sglang

Results = dict[str, dict[str, Any]]

QWEN, LING = "qwen3-next-80b-a3b", "ling-3.0-flash"
RESIDENCY, PREFIX = Policy("routing-residency"), Policy("routing-prefix")
SHORT = replace(
    SHORT_QUEUE, samples=64, turns=4, initial_prompt_tokens=5_000, output_tokens=16, response_tokens=600
)
# More trajectories at once than there are state slots, most of them in long environment stages.
MANY_IDLE = replace(
    SHORT,
    samples=48,
    sample_concurrency=48,
    initial_prompt_tokens=10_000,
    environment_s=4.0,
    max_running_requests=4,
    state_slots=36,
)
LITTLE_KV = replace(
    SHORT_QUEUE, samples=16, sample_concurrency=16, turns=3, initial_prompt_tokens=2_000, output_tokens=100
)
AT_ONCE = (24, 48, 64)
RUNS = {
    "fcfs": Run(SHORT, QWEN, Policy("fcfs")),
    "routing-prefix": Run(SHORT, QWEN, PREFIX),
    **{
        f"{count} at once": Run(replace(SHORT, sample_concurrency=count), QWEN, RESIDENCY)
        for count in AT_ONCE
    },
    "idle routing-prefix": Run(MANY_IDLE, LING, PREFIX),
    "idle": Run(MANY_IDLE, LING, RESIDENCY),
    "without states": Run(LITTLE_KV, LING, RESIDENCY),
}


@pytest.fixture(scope="module")
def passes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each run of routing-residency leaves its passes, under the run's name."""
    return tmp_path_factory.mktemp("passes")


@pytest.fixture(scope="module")
def results(sglang_python: Path, passes: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    jobs = {}
    for name, run in RUNS.items():
        job = jobs[name] = run.job(tmp_path_factory.mktemp("models"))
        # More than 64 trajectories need. SGLang copies the list of free tokens again and again.
        job["server_args"]["max_total_tokens"] = 800_000
        if run.policy == RESIDENCY:
            job["passes"] = str(passes / name)
    jobs["without states"]["server_args"] |= {
        "model_path": str(dense_model(tmp_path_factory.mktemp("models"))),
        "max_total_tokens": 14_000,
        "chunked_prefill_size": 1_024,
    }
    return dict(carry_out_all(str(sglang_python), jobs))


def test_it_reuses_as_much_as_routing_prefix_at_any_concurrency_and_fcfs_far_less(results: Results) -> None:
    fcfs, best = results["fcfs"], results["routing-prefix"]
    for count in AT_ONCE:
        ours = results[f"{count} at once"]
        assert ours["cache_reuse"] >= best["cache_reuse"] - 0.002 > 0.6
        assert ours["later_turns_without_hit"] == 0
        assert ours["makespan_s"] < 1.02 * best["makespan_s"]
        assert fcfs["cache_reuse"] < 0.5 * ours["cache_reuse"]
        assert fcfs["makespan_s"] > 1.2 * ours["makespan_s"]


def test_the_guard_keeps_idle_trajectories_cached(results: Results) -> None:
    prefix, ours = results["idle routing-prefix"], results["idle"]
    assert ours["cache_reuse"] > prefix["cache_reuse"] + 0.05
    assert ours["later_turns_without_hit"] < 0.5 * prefix["later_turns_without_hit"]
    assert ours["makespan_s"] < 0.97 * prefix["makespan_s"]


@pytest.mark.parametrize("name", [*(f"{count} at once" for count in AT_ONCE), "idle", "without states"])
def test_every_pass_is_that_of_the_specification(results: Results, passes: Path, name: str) -> None:
    run = residency_passes(passes / name)
    checker = ResidencyChecker(states=name != "without states")
    assert check_all(checker, run) == results[name]["scheduling_passes"] > 100
    assert sum(len(one.admitted) for one in run) == results[name]["turns"] + results[name]["retractions"]
    assert any(order_before(one) != one.ordered for one in run)
    if name in ("idle", "without states"):
        assert checker.held_back > 50
        assert checker.started_beside > 5


def is_held_back(one: ResidencyPass) -> bool:
    return any(each.held_back for each in one.offered)


def labels_waiting(one: ResidencyPass) -> tuple[str, ...]:
    return tuple(each.label for each in one.waiting if each.label)


def with_offered(one: ResidencyPass, **changes: Any) -> ResidencyPass:
    """Its last request offered otherwise."""
    last = msgspec.structs.replace(one.offered[-1], **changes)
    return msgspec.structs.replace(one, offered=(*one.offered[:-1], last))


Fault = tuple[Callable[[ResidencyPass], ResidencyPass], Callable[[ResidencyPass], object], str]

# What is changed in a pass, in which, and what the checker says of it.
FAULTS: dict[str, Fault] = {
    "order": (
        lambda one: msgspec.structs.replace(one, ordered=one.ordered[:-2] + one.ordered[:-3:-1]),
        lambda one: len(one.ordered) > 2,
        "order: ",
    ),
    "cached": (
        lambda one: msgspec.structs.replace(one, cached=()),
        lambda one: one.ordered != order_before(one),
        "order: ",
    ),
    "admission": (
        lambda one: msgspec.structs.replace(one, admitted=one.ordered[-1:]),
        lambda one: len(one.ordered) > len(one.admitted) > 0,
        "admitted: ",
    ),
    "not held back": (
        lambda one: with_offered(one, held_back=False),
        is_held_back,
        "was not held back",
    ),
    "held back": (
        lambda one: with_offered(one, held_back=True),
        lambda one: one.offered and not is_held_back(one),
        "was held back",
    ),
    "room": (
        lambda one: msgspec.structs.replace(one, slots=Slots(1000, 1000, 5)),
        is_held_back,
        "was held back",
    ),
    "live": (
        lambda one: msgspec.structs.replace(
            one, held=tuple(Held(each.label, each.tokens, not each.live) for each in one.held or ())
        ),
        lambda one: one.held,
        "was taken for",
    ),
    "evicted": (
        lambda one: msgspec.structs.replace(
            one, lost=tuple(each.label for each in one.waiting if each.label)
        ),
        lambda one: len(one.offered) == 1 and not (is_held_back(one) or one.cached or one.offered[0].alone),
        "live trajectories evicted",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_doctored_record_of_residency_is_found(results: Results, passes: Path, fault: str) -> None:
    doctor, applies, message = FAULTS[fault]
    run = residency_passes(passes / "idle")
    places = [place for place, one in enumerate(run) if applies(one)]
    assert places
    for place in places[:: max(1, len(places) // 10)]:
        doctored = [*run[:place], doctor(run[place]), *run[place + 1 :]]
        with pytest.raises(OrderError, match=f"pass {place + 1}: .*{message}"):
            check_all(ResidencyChecker(), doctored)


def residency_passes(path: Path) -> list[ResidencyPass]:
    return [one for one in read_passes(path) if isinstance(one, ResidencyPass)]


def order_before(one: ResidencyPass) -> tuple[str, ...]:
    return tuple(each.id for each in one.waiting)


def dense_model(folder: Path) -> Path:
    """A model without recurrent states."""
    directory = folder / "dense"
    directory.mkdir()
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_act": "silu",
        "max_position_embeddings": 65_536,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    (directory / "config.json").write_text(json.dumps(config))
    return directory
