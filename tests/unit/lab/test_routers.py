"""Each router's rule, on cases made by hand."""

from collections.abc import Sequence
from typing import get_args

import pytest
from simulated import outcome_of, settings, small_model, trajectory

from coresched.lab.policies import POLICIES
from coresched.lab.simulator.model import load_worker_model
from coresched.lab.simulator.routers.hashing import stable_hash
from coresched.lab.simulator.routers.registry import PLAIN_ROUTERS
from coresched.lab.simulator.routers.router import Fleet, Router
from coresched.lab.simulator.settings import (
    ADMISSION_POLICIES,
    COMPILED_ROUTERS,
    ENVIRONMENT_POLICIES,
    ROUTERS,
    WORKER_POLICIES,
    PlainRouting,
)
from coresched.trajectory.schema import Trajectory

SHORT, LONG = 1_000, 50_000
"""Prompt tokens."""


def fleet(workers: int = 3, samples: int = 40, load_bound: float = 1.25, seed: int = 0) -> Fleet:
    labels = [f"t{number}" for number in range(samples)]
    return Fleet(labels, workers, load_bound, seed, load_worker_model().times)


def router(name: str, **changes: float) -> Router:
    return PLAIN_ROUTERS[name](fleet(**changes))  # type: ignore[arg-type]


def at_home(worker: int, **changes: float) -> int:
    """A sample whose home that is."""
    return fleet(**changes).homes().index(worker)  # type: ignore[arg-type]


def place(
    routes: Router, sample: int, in_flight: Sequence[int], prompt_tokens: int = LONG, t: float = 0
) -> int:
    return routes.place(sample, prompt_tokens, in_flight, t)


def batch() -> list[Trajectory]:
    turns = [(30, 1.0, 60), (20, 2.0, 40), (40, 0.5, 30), (10, None, 0)]
    return [trajectory(f"t{number}", turns[number % 3 :], prompt=100 + 40 * number) for number in range(12)]


def test_every_router_is_made_and_every_policy_explained() -> None:
    assert (*COMPILED_ROUTERS, *PLAIN_ROUTERS) == ROUTERS
    assert tuple(PLAIN_ROUTERS) == get_args(PlainRouting)
    for kind, names in (
        ("admission", ADMISSION_POLICIES),
        ("routing", ROUTERS),
        ("worker", WORKER_POLICIES),
        ("environment", ENVIRONMENT_POLICIES),
        ("admission", ADMISSION_POLICIES),
    ):
        assert tuple(policy.name for policy in POLICIES if policy.kind == kind) == names


@pytest.mark.parametrize("routing", PLAIN_ROUTERS)
def test_a_run_is_the_same_again(routing: str) -> None:
    run = settings(workers=3, routing=routing, sample_concurrency=9, seed=5)
    first = outcome_of(batch(), run, small_model())
    assert first == outcome_of(batch(), run, small_model())
    assert len(first.completed_s) == len(batch())


@pytest.mark.parametrize("name", PLAIN_ROUTERS)
def test_one_worker_gets_everything(name: str) -> None:
    routes = router(name, workers=1)
    for sample in range(5):
        assert place(routes, sample, [sample], SHORT) == 0


def test_least_loaded_takes_the_first_of_the_fewest() -> None:
    assert place(router("least-loaded"), 0, [2, 1, 1]) == 1


def test_power_of_two_never_takes_the_most_loaded_and_draws_by_the_seed() -> None:
    def drawn(seed: int) -> list[int]:
        routes = router("power-of-two", seed=seed)
        return [place(routes, sample, [5, 9, 5]) for sample in range(40)]

    assert set(drawn(0)) == {0, 2}
    assert drawn(0) == drawn(0) != drawn(1)


def test_prefix_hash_leaves_home_above_the_mean_by_factor_and_by_ten() -> None:
    sample = at_home(0)
    assert place(router("prefix-hash"), sample, [17, 3, 1]) == 0  # 17 <= 7.33 + 10
    assert place(router("prefix-hash"), sample, [19, 3, 1]) == 2  # 19 > 8 + 10
    assert place(router("prefix-hash-strict"), sample, [6, 5, 3]) == 0  # 6 <= 5 * 1.25
    assert place(router("prefix-hash-strict"), sample, [7, 4, 3]) == 2  # 7 > 5 * 1.25


def test_bounded_ring_rounds_up_and_overflows_along_the_labels_own_order() -> None:
    routes = router("bounded-ring", workers=4)
    samples = [sample for sample, home in enumerate(fleet(workers=4).homes()) if home == 0]
    # (3 + 1) * 125 % = 5 places, 2 a worker: a load of 2 is not above them, where LBCH has 1.25.
    assert {place(routes, sample, [2, 1, 0, 0]) for sample in samples} == {0}
    overflow = {sample: place(routes, sample, [3, 0, 0, 0]) for sample in samples}
    assert len(set(overflow.values())) > 1
    assert 0 not in overflow.values()
    assert overflow == {sample: place(routes, sample, [3, 0, 0, 0]) for sample in samples}
    assert place(routes, samples[0], [0, 0, 0, 0]) == 0


def test_sticky_least_loaded_counts_trajectories_and_forgets_those_that_ended() -> None:
    routes = router("sticky-least-loaded")
    placed = [place(routes, sample, [0, 0, 0]) for sample in range(6)]
    assert sorted(placed) == [0, 0, 1, 1, 2, 2]
    assert placed[0] == max(range(3), key=lambda worker: stable_hash(f"t0:{worker}"))
    assert [place(routes, sample, [9, 9, 9]) for sample in range(6)] == placed
    routes.finished(3)
    assert place(routes, 6, [9, 9, 9]) == placed[3]


def test_sticky_table_moves_only_what_is_cheap_and_for_good() -> None:
    routes = router("sticky-table")
    assert [place(routes, sample, [0, 0, 0], SHORT) for sample in range(3)] == [0, 1, 2]
    assert place(routes, 0, [8, 0, 0], LONG) == 0
    assert place(routes, 0, [7, 0, 0], SHORT) == 0
    assert place(routes, 0, [17, 9, 9], SHORT) == 0
    assert place(routes, 0, [8, 1, 0], SHORT) == 2
    assert place(routes, 0, [0, 0, 0], SHORT) == 2


def test_dualmap_stays_with_the_cache_until_the_first_token_would_be_late() -> None:
    routes = router("dualmap", workers=2)
    home = place(routes, 0, [0, 0])
    routes.started(0, home, 1.0)
    busy = [9, 0] if home == 0 else [0, 9]
    assert place(routes, 0, busy, LONG + 500) == home  # requests that decode make no first token late
    routes.started(0, home, 2.0)
    # New prompts are cached nowhere, so they alternate; then one more waits here than there.
    waiting = [place(routes, sample, [0, 0]) for sample in range(1, 9)]
    assert sorted(waiting) == [0] * 4 + [1] * 4
    assert place(routes, 9, busy[::-1]) == home
    assert place(routes, 0, [0, 0], LONG + 1_000) == 1 - home


def test_dualmap_knows_two_workers_of_each_label() -> None:
    routes = router("dualmap", workers=8)
    seen = {place(routes, 0, [0] * 8, SHORT * turn) for turn in range(1, 30)}
    assert len(seen) <= 2


def test_preble_follows_the_prompt_and_explores_with_a_mostly_new_one() -> None:
    routes = router("preble")
    assert [place(routes, sample, [0, 0, 0]) for sample in range(3)] == [0, 1, 2]
    assert place(routes, 1, [0, 9, 0], LONG + SHORT) == 1
    # Nothing has ended yet, so work is what the prompts of the last three minutes took.
    assert place(routes, 3, [0, 0, 0], LONG * 2) == 0
    assert place(routes, 4, [0, 0, 0]) == 2
    assert place(routes, 0, [0, 0, 0], 4 * LONG) == 1  # three quarters of it are new
    # Long after all that, it is the requests in flight, a minute each.
    routes.started(0, 1, 1.0)
    routes.ended(0, 1, 61.0)
    assert place(routes, 5, [2, 2, 1], t=1_000.0) == 2


def test_autellix_spreads_short_prompts_and_keeps_long_ones_together() -> None:
    routes = router("autellix-locality")
    assert place(routes, 0, [1, 0, 1], 2_048) == 1
    assert place(routes, 0, [1, 1, 0], 2_049) == 2
    assert place(routes, 0, [0, 1, 9], LONG) == 2
    assert place(routes, 0, [0, 1, 9], 2_048) == 0


def test_sticky_bounded_counts_the_requests_in_flight_itself() -> None:
    routes = router("sticky-bounded")
    assert [place(routes, sample, []) for sample in range(3)] == [0, 1, 2]
    assert place(routes, 0, []) == 0  # 1 <= 1.25 * 4 / 3
    routes.ended(1, 1, 1.0)
    assert place(routes, 0, []) == 1  # 2 > 1.25 * 4 / 3
