"""Which candidate gets a request: LBCH on the counts of the request, and on picks not counted yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from random import Random

import pytest
from coresched_aibrix.picker import NoCountsError, Picker
from coresched_aibrix.protocol import Candidate, Metrics
from selection_requests import pods

from coresched.core import LoadBoundedRouter

THREE = pods(3)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def candidates(running: Mapping[str, int | None], ports: tuple[int, ...] = (8000,)) -> list[Candidate]:
    return [Candidate(pod, list(ports), Metrics(count)) for pod, count in running.items()]


def test_with_exact_counts_each_pick_is_that_of_the_router_in_process() -> None:
    router = LoadBoundedRouter(THREE)
    picker = Picker(pending_s=0)
    for n in range(300):
        label = f"traj-{n % 7}"
        loads = router.loads()
        assert picker.pick(label, candidates(loads)).pod == router.route(label)
        if n % 3 == 0:
            router.release(max(loads, key=lambda pod: router.loads()[pod]))
    assert 0 < picker.spilled < picker.picks == 300


def test_a_burst_that_aibrix_has_not_counted_is_split_as_if_it_had() -> None:
    clock = Clock()
    router = LoadBoundedRouter(THREE)
    idle = candidates(dict.fromkeys(THREE, 0))
    picker, without = Picker(clock=clock), Picker(pending_s=0, clock=clock)
    split = Counter(picker.pick("hot", idle).pod for _ in range(30))
    assert split == Counter(router.route("hot") for _ in range(30))
    assert sorted(split.values()) == [4, 13, 13]
    assert Counter(without.pick("hot", idle).pod for _ in range(30)) == {router.home("hot"): 30}


def test_a_request_that_is_refused_leaves_nothing_on_the_ring_and_nothing_pending() -> None:
    clock = Clock()
    picker = Picker(clock=clock)
    many = dict.fromkeys(pods(40), 0)
    del many[new := pods(40)[39]]
    picker.pick("a", candidates(many))
    clock.now += 1
    for refused in (candidates({new: 0, "x" * 600: 0}), candidates({new: 0}, (80, 80))):
        with pytest.raises(ValueError, match=r"in spec\.candidates must be"):
            picker.pick("a", refused)
    assert (picker.pods, picker.picks) == (39, 1)
    assert picker.pick("a", candidates({new: 0})).pod == new
    assert picker.pods == 40


@pytest.mark.parametrize("counted_after_ms", [0, 2, 10, 19])
def test_a_burst_is_split_about_as_well_whenever_aibrix_counts_it(counted_after_ms: int) -> None:
    # One pick a millisecond; those that AIBrix counts within the 20 ms count twice until these are over.
    clock = Clock()
    picker = Picker(clock=clock)
    picked: list[tuple[float, str]] = []
    for _ in range(30):
        counted = Counter(pod for at, pod in picked if clock.now - at >= counted_after_ms / 1e3)
        picked.append((clock.now, picker.pick("hot", candidates({pod: counted[pod] for pod in THREE})).pod))
        clock.now += 1e-3
    split = sorted(Counter(pod for _, pod in picked).values())
    assert len(split) == 3
    assert split[0] >= 4
    assert split[2] <= 14


def share_at_home(pending_s: float, counted_after_s: float, turns: int = 4000) -> float:
    """64 trajectories on 8 pods, turns of 0.2 s, gaps of 0.3 s, counted late: the share of turns at home."""
    random, clock, running = Random(1), Clock(), Counter[str]()
    picker = Picker(pending_s=pending_s, clock=clock)
    events = [(clock.now + random.random() / 2, f"t{n}", "asks", "") for n in range(64)]
    heapify(events)
    while picker.picks < turns:
        clock.now, label, what, pod = heappop(events)
        if what == "asks":
            picked = picker.pick(label, candidates({name: running[name] for name in pods(8)})).pod
            heappush(events, (clock.now + counted_after_s, label, "counted", picked))
        elif what == "counted":
            running[pod] += 1
            heappush(events, (clock.now + random.expovariate(1 / 0.2), label, "ended", pod))
        else:
            running[pod] -= 1
            heappush(events, (clock.now + random.expovariate(1 / 0.3), label, "asks", ""))
    return 1 - picker.spilled / picker.picks


def test_picks_that_count_twice_for_a_while_cost_little_where_nothing_bursts() -> None:
    assert share_at_home(0.02, 0.002) > share_at_home(0.0, 0.002) - 0.03


def test_a_pick_weighs_on_its_pod_only_while_it_is_pending() -> None:
    clock = Clock()
    picker = Picker(pending_s=0.02, clock=clock)
    idle = candidates(dict.fromkeys(THREE, 0))
    home = picker.pick("hot", idle).pod
    assert picker.pick("hot", idle).pod != home  # 1 in flight of 2 is over 1.25 * 2 / 3
    clock.now += 0.021
    assert picker.pick("hot", idle).pod == home


def test_a_label_stays_where_it_is_when_the_candidates_change() -> None:
    picker = Picker(pending_s=0)
    names = pods(12)
    before = {f"t{n}": picker.pick(f"t{n}", candidates(dict.fromkeys(names, 0))).pod for n in range(200)}
    left = dict.fromkeys(names[1:], 0)
    for label, pod in before.items():
        assert picker.pick(label, candidates(left)).pod == pod or pod == names[0]


def test_the_label_has_one_of_several_ports() -> None:
    picker = Picker(pending_s=0)
    ranks = candidates({THREE[0]: 0}, (8003, 8001, 8002))
    ports = {f"t{n}": picker.pick(f"t{n}", ranks).port for n in range(60)}
    assert set(ports.values()) == {8001, 8002, 8003}
    assert all(picker.pick(label, ranks).port == port for label, port in ports.items())


def test_a_pod_without_a_count_is_idle_and_none_with_one_is_no_load_to_bound() -> None:
    picker = Picker(pending_s=0)
    home = picker.pick("t", candidates(dict.fromkeys(THREE, 0))).pod
    running: dict[str, int | None] = dict.fromkeys(THREE, 9)
    assert picker.pick("t", candidates({**running, home: None})).pod == home
    with pytest.raises(NoCountsError, match="AIBRIX_EXTERNAL_ROUTER_CANDIDATE_METRICS=runningRequests"):
        picker.pick("t", candidates(dict.fromkeys(THREE)))
    assert picker.pick("t", candidates({home: None})).pod == home  # there is nothing to choose


def test_a_pod_that_no_request_names_is_forgotten() -> None:
    clock = Clock()
    picker = Picker(forget_s=600, clock=clock)
    picker.pick("t", candidates(dict.fromkeys(pods(8), 0)))
    assert picker.pods == 8
    for _ in range(2):
        clock.now += 601
        picker.pick("t", candidates(dict.fromkeys(THREE, 0)))
    assert picker.pods == 3
    assert picker.pick("t", candidates(dict.fromkeys(pods(8), 0))).pod in pods(8)


def test_a_pod_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="must name each pod once, got"):
        Picker().pick("t", candidates({THREE[0]: 0}) * 2)
