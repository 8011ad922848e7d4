"""Routing-residency in the simulator, on cases made by hand: who goes first, who must wait, who is spared."""

import pytest
from simulated import outcome_of, settings, small_model, trajectory

from coresched.lab.simulator.memory import SLOT_UNITS, Memory
from coresched.lab.simulator.outcome import Outcome
from coresched.lab.simulator.twin.pools import CachePools
from coresched.lab.simulator.twin.residency import Residency
from coresched.lab.simulator.workload import Workload, build_workload
from coresched.trajectory.schema import Trajectory

MEMORY = Memory(
    pages=1_000, page_tokens=1, slot_units=20 * SLOT_UNITS, running_slot_units=3 * SLOT_UNITS, max_running=6
)
"""1,000 tokens of KV and 20 state slots."""


def workload(count: int = 8) -> Workload:
    return build_workload(
        [trajectory(f"t{number}", [(1, None, 0)]) for number in range(count)], page_tokens=1
    )


class Worker:
    """Residency and pools of one worker, whose turns take no time; the clock is moved by hand."""

    def __init__(self, memory: Memory = MEMORY, guarded: bool = True) -> None:
        columns = workload()
        self.pools = CachePools(columns, memory)
        self.residency = Residency(columns, self.pools, guarded)
        self.now = 0

    def at(self, now: int) -> "Worker":
        self.now = now
        self.residency.tick(now)
        return self

    def turn(self, sample: int, tokens: int) -> None:
        """A turn comes, runs and ends with so many tokens."""
        self.comes(sample)
        self.runs(sample, tokens)
        self.pools.finish(sample, tokens, tokens)
        self.residency.finished(sample)
        self.residency.tick(self.now)

    def comes(self, sample: int) -> None:
        self.residency.arrived(sample)
        if self.residency.gaps is not None:
            self.residency.gaps.began(f"t{sample}", self.now)

    def runs(self, sample: int, tokens: int) -> None:
        self.residency.started(sample)
        self.pools.start(sample, tokens)
        self.pools.grow(sample, tokens)
        self.pools.make_room()

    def with_gaps(self, length: int) -> "Worker":
        """Sample 7 has come back after so many steps, twice, and has then been dropped."""
        for now in (self.now, self.now + length, self.now + 2 * length):
            self.at(now).turn(7, 1)
        self.pools.release(7)
        self.residency.release(7)
        return self.at(self.now)


def test_one_that_is_expected_back_keeps_a_cold_request_waiting() -> None:
    worker = Worker().with_gaps(10)
    since = worker.now
    worker.turn(0, 600)
    assert worker.residency.holds_back(1, 400)
    assert worker.at(since + 10).residency.holds_back(1, 400)
    assert not worker.at(since + 11).residency.holds_back(1, 400)


def test_live_kv_is_counted_with_what_it_will_grow_by() -> None:
    worker = Worker().with_gaps(10)
    worker.turn(0, 600)
    assert not worker.residency.holds_back(1, 310)  # 600 * 1.15 = 690
    assert worker.residency.holds_back(1, 311)


def test_state_slots_are_counted_too() -> None:
    worker = Worker().with_gaps(10)
    for sample in range(4):  # three slots each while they run
        worker.runs(sample, 10)
    worker.turn(4, 10)
    assert not worker.residency.holds_back(6, 10)  # 4 * 3 + 1 + 3 of 20
    worker.runs(5, 10)
    worker.turn(6, 10)
    assert not worker.residency.holds_back(7, 10)  # 5 * 3 + 2 + 3 of 20
    worker.runs(4, 10)
    assert worker.residency.holds_back(7, 10)


def test_who_waits_is_live_however_long_it_was_away() -> None:
    worker = Worker().with_gaps(10)
    worker.turn(0, 600)
    worker.at(worker.now + 500)
    assert not worker.residency.holds_back(1, 400)
    worker.comes(0)
    assert worker.residency.holds_back(1, 400)


def test_the_cached_and_all_of_an_unguarded_worker_are_never_held_back() -> None:
    guarded, unguarded = Worker().with_gaps(10), Worker(guarded=False)
    for worker in (guarded, unguarded):
        worker.turn(0, 900)
    assert not guarded.residency.holds_back(0, 1_000)
    assert not unguarded.residency.holds_back(1, 900)


def test_who_is_live_is_spared_though_it_was_used_longest_ago() -> None:
    worker = Worker().with_gaps(10)
    worker.turn(0, 300)
    worker.turn(1, 300)
    worker.at(worker.now + 50).comes(0)
    worker.at(worker.now + 10).turn(2, 300)
    worker.runs(3, 300)
    assert sorted(worker.pools.tokens) == [0, 2, 3]  # 1 is not expected back any more


def test_where_all_are_live_the_least_recently_used_goes() -> None:
    worker = Worker().with_gaps(10)
    for sample in range(3):
        worker.turn(sample, 300)
    worker.runs(3, 300)
    assert sorted(worker.pools.tokens) == [1, 2, 3]


def test_who_was_evicted_or_released_is_cached_no_more() -> None:
    worker = Worker(guarded=False)
    worker.turn(0, 600)
    worker.turn(1, 300)
    assert worker.residency.policy.labels() == {"t0", "t1"}
    worker.turn(2, 300)
    assert worker.residency.policy.labels() == {"t1", "t2"}
    worker.pools.release(1)
    worker.residency.release(1)
    assert worker.residency.policy.labels() == {"t2"}
    assert (worker.pools.used_pages, worker.pools.used_slot_units) == (300, SLOT_UNITS)
    assert worker.pools.evictions == 1


def crowd() -> list[Trajectory]:
    """Room for about 12 of them at once, 40 of them admitted."""
    return [trajectory(f"t{number}", [(5, 0.5, 5)] * 12 + [(5, None, 0)], prompt=300) for number in range(40)]


def run(policy: str, **changes: object) -> Outcome:
    model = small_model(running_request_slots=1.0, max_running_requests=8)
    return outcome_of(crowd(), settings(worker_policy=policy, sample_concurrency=40, **changes), model)


def test_the_guard_ends_what_the_tier_alone_loses() -> None:
    fcfs, tier, guarded = run("fcfs"), run("routing-residency-unguarded"), run("routing-residency")
    assert guarded.new_prefill_tokens < tier.new_prefill_tokens < fcfs.new_prefill_tokens
    assert max(guarded.completed_s[-1], tier.completed_s[-1]) < fcfs.completed_s[-1]


def test_an_engine_alone_with_a_cold_request_runs_it() -> None:
    # The second prompt leaves no room for the first trajectory, which is in its gap.
    batch = [
        trajectory("a", [(2, 1.0, 2)] * 8 + [(2, None, 0)], prompt=3_000),
        trajectory("b", [(2, None, 0)], prompt=5_000),
    ]
    outcome = outcome_of(batch, settings(worker_policy="routing-residency"), small_model())
    assert len(outcome.completed_s) == 2


@pytest.mark.parametrize("policy", ["fcfs", "routing-prefix", "routing-residency"])
def test_what_finished_makes_room_where_the_worker_is_told(policy: str) -> None:
    one_by_one = settings(worker_policy=policy, sample_concurrency=1)
    batch, model = crowd(), small_model()
    assert outcome_of(batch, one_by_one, model).evictions > 0
    told = settings(worker_policy=policy, sample_concurrency=1, release_finished=True)
    assert outcome_of(batch, told, model).evictions == 0


def test_labels_of_the_finished_leave_the_label_set() -> None:
    # C_A is 4: labels of finished trajectories would push out those of live ones.
    kept, told = run("routing-prefix"), run("routing-prefix", release_finished=True)
    assert told.new_prefill_tokens < kept.new_prefill_tokens
