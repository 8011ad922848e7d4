"""Each eviction policy's rule, on cases made by hand."""

from collections.abc import Sequence
from typing import get_args

import pytest
from simulated import outcome_of, settings, small_model

from coresched.errors import InputError
from coresched.lab.policies import POLICIES
from coresched.lab.simulator.evictions.eviction import Cache, Eviction
from coresched.lab.simulator.evictions.marconi import Marconi
from coresched.lab.simulator.evictions.registry import PLAIN_EVICTIONS
from coresched.lab.simulator.settings import (
    EVICTION_POLICIES,
    POOL_POLICIES,
    EngineSettings,
    PlainEviction,
    RunSettings,
)
from coresched.lab.simulator.workload import build_workload
from coresched.trajectory.schema import Environment, Trajectory, Turn

BASH, USER, NONE = "bash", "user", None


def calling(name: str, kinds: Sequence[str | None], duration_s: float = 0.0, prompt: int = 100) -> Trajectory:
    """One turn for each kind of tool, the last of which may be none."""
    return Trajectory(
        id=name,
        initial_prompt_tokens=prompt,
        turns=tuple(
            Turn(
                output_tokens=10, env=None if kind is None else Environment(duration_s=duration_s, kind=kind)
            )
            for kind in kinds
        ),
    )


def cache(*trajectories: Trajectory) -> Cache:
    model = small_model()
    return Cache.of(build_workload(trajectories, page_tokens=1), model)


def policy(name: str, *trajectories: Trajectory) -> Eviction:
    return PLAIN_EVICTIONS[name](cache(*trajectories))


def run_turn(
    evictions: Eviction, sample: int, turn: int, queued_s: float, rested_s: float, tokens: int = 100
) -> None:
    evictions.queued(sample, queued_s)
    evictions.started(sample, queued_s)
    evictions.rested(sample, turn, tokens, rested_s)


THREE = [calling(name, [BASH, BASH, NONE]) for name in "abc"]
"""Turns 0 to 2, 3 to 5 and 6 to 8."""


def test_every_policy_is_made_and_explained() -> None:
    assert tuple(PLAIN_EVICTIONS) == get_args(PlainEviction)
    assert ("lru", *PLAIN_EVICTIONS) == EVICTION_POLICIES
    for kind, names in (("eviction", EVICTION_POLICIES), ("pools", POOL_POLICIES)):
        assert tuple(policy.name for policy in POLICIES if policy.kind == kind) == names


@pytest.mark.parametrize("name", PLAIN_EVICTIONS)
def test_entries_that_a_rule_cannot_tell_apart_go_by_recency(name: str) -> None:
    evictions = policy(name, *THREE)
    for sample in range(3):
        run_turn(evictions, sample, 3 * sample, 1.0, 2.0)
    assert evictions.victim([0, 1, 2], 3.0) == 0


def test_lfu_counts_turns_since_the_entry_was_computed_anew() -> None:
    evictions = policy("lfu", *THREE)
    for sample, turn in ((0, 0), (1, 3), (0, 1), (2, 6), (2, 7)):
        run_turn(evictions, sample, turn, 0.0, 1.0)
    assert evictions.victim([1, 0, 2], 2.0) == 1
    run_turn(evictions, 1, 4, 3.0, 4.0)
    assert evictions.victim([0, 2, 1], 5.0) == 1


def test_slru_protects_what_was_used_again() -> None:
    evictions = policy("slru", *THREE)
    for sample, turn in ((0, 0), (0, 1), (0, 2), (1, 3), (2, 6), (2, 7)):
        run_turn(evictions, sample, turn, 0.0, 1.0)
    assert evictions.victim([0, 1, 2], 2.0) == 1
    assert evictions.victim([2, 0], 2.0) == 2


def test_smallest_context_and_marconi_keep_what_took_long_to_compute() -> None:
    for name in ("smallest-context", "marconi"):
        evictions = policy(name, *THREE)
        for sample, tokens in ((0, 4_000), (1, 50), (2, 2_000)):
            run_turn(evictions, sample, 3 * sample, 0.0, 1.0, tokens)
        assert evictions.victim([0, 1, 2], 2.0) == 1


def test_marconi_weighs_recency_against_what_is_spared() -> None:
    def victim(alpha: float, touched: int | None = None) -> int:
        evictions = Marconi(cache(*THREE), alpha)
        for sample, tokens in ((0, 4_000), (1, 150), (2, 50)):
            run_turn(evictions, sample, 3 * sample, 0.0, 1.0, tokens)
        if touched is not None:
            evictions.touched(touched, 1.5)
        return evictions.victim([0, 1, 2], 2.0)

    # Last used 3, 2 and 1 ticks ago: recency 0, 0.25 and 1; efficiency 1, 0.39 and 0.
    assert victim(alpha=0) == 0
    assert victim(alpha=1) == 1
    assert victim(alpha=2) == 2
    assert victim(alpha=0, touched=0) == 1


def test_peek_gives_up_first_what_nobody_waits_for() -> None:
    evictions = policy("peek", *THREE)
    for sample in range(3):
        run_turn(evictions, sample, 3 * sample, 0.0, 1.0)
    evictions.queued(0, 2.0)
    assert evictions.victim([0, 1, 2], 3.0) == 1
    evictions.started(0, 4.0)
    evictions.rested(0, 1, 100, 5.0)
    assert evictions.victim([0, 1, 2], 5.0) == 0


def test_saga_expects_a_tool_to_take_what_it_took_before() -> None:
    batch = [calling("a", [BASH, USER, BASH, NONE]), calling("b", [USER, NONE]), calling("c", [BASH, NONE])]
    evictions = policy("saga", *batch)
    run_turn(evictions, 0, 0, 0.0, 1.0)  # bash takes 2 s
    run_turn(evictions, 0, 1, 3.0, 4.0)  # the user 60 s
    run_turn(evictions, 0, 2, 64.0, 65.0)
    run_turn(evictions, 1, 4, 64.0, 65.0)
    run_turn(evictions, 2, 6, 66.0, 70.0)
    # Next uses at 67, 125 and 72.
    assert evictions.victim([2, 0, 1], 70.0) == 1
    assert evictions.victim([0, 2], 70.0) == 2
    run_turn(evictions, 0, 3, 70.0, 71.0)  # calls nothing: its last
    assert evictions.victim([1, 2, 0], 71.0) == 0


def test_mori_gives_up_what_is_longest_in_its_tools() -> None:
    evictions = policy("mori", *THREE)
    run_turn(evictions, 0, 0, 0.0, 4.0)
    run_turn(evictions, 1, 3, 0.0, 4.0)
    run_turn(evictions, 1, 4, 14.0, 16.0)  # 10 s in a tool
    run_turn(evictions, 0, 1, 6.0, 16.0)  # 2 s
    assert evictions.victim([0, 1], 16.0) == 1
    evictions.queued(1, 17.0)
    assert evictions.victim([0, 1], 100.0) == 0  # 86 of 100 s in tools, and 11 of 100
    run_turn(evictions, 2, 6, 199.0, 200.0)
    run_turn(evictions, 2, 7, 200.0, 200.5)
    run_turn(evictions, 2, 8, 200.5, 201.0)  # the last one
    assert evictions.victim([0, 1, 2], 201.0) == 2


def test_belady_reads_the_next_arrival_in_the_trace() -> None:
    batch = [calling("a", [BASH, NONE], 5.0), calling("b", [BASH, NONE], 50.0), calling("c", [NONE])]
    evictions = policy("belady", *batch)
    run_turn(evictions, 0, 0, 0.0, 1.0)
    run_turn(evictions, 1, 2, 0.0, 1.0)
    assert evictions.victim([0, 1], 1.0) == 1
    run_turn(evictions, 2, 4, 0.0, 1.0)
    assert evictions.victim([0, 1, 2], 1.0) == 2
    evictions.queued(1, 51.0)
    evictions.queued(0, 52.0)  # its stage had to wait for a slot
    assert evictions.victim([1, 0], 53.0) == 0


def test_a_better_choice_keeps_what_is_used_next() -> None:
    # Three trajectories take turns in a cache for two: lru always gives up the one that comes next.
    model = small_model(
        pool_tokens=2_000, request_state_tokens=300, max_running_requests=1, overlap_schedule=False
    )
    batch = [calling(name, [BASH] * 9 + [NONE], 0.0, prompt=300) for name in "abc"]
    evicted = {
        name: outcome_of(batch, settings(eviction_policy=name, sample_concurrency=3), model).evictions
        for name in EVICTION_POLICIES
    }
    assert evicted["belady"] < evicted["lru"]
    assert evicted["saga"] < evicted["lru"]


def test_only_the_simulators_own_workers_evict_otherwise() -> None:
    with pytest.raises(InputError, match="eviction_policy is 'mru'; it must be one of lru, lfu"):
        settings(eviction_policy="mru")
    with pytest.raises(InputError, match="pool_policy is 'dynamic'; it must be one of static, avmp"):
        settings(pool_policy="dynamic")
    fields = {"name": "engine", "workers": 1, "sample_concurrency": 1, "environment_concurrency": None}
    engine = {**fields, "state_ratio": 1.0, "label_capacity": 1}
    with pytest.raises(InputError, match=r"'marconi'; it must be one of lru$"):
        EngineSettings(**engine, eviction_policy="marconi")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"'avmp'; it must be one of static$"):
        EngineSettings(**engine, pool_policy="avmp")  # type: ignore[arg-type]
    assert isinstance(EngineSettings(**engine), RunSettings)  # type: ignore[arg-type]
