"""Cached prompts first, then the first of each group of prompts that begin alike, then its others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from coresched.lab.simulator.orders.hits import COLD_TOKENS, all_hits, followers
from coresched.lab.simulator.orders.order import LONG_QUEUE, Order, PrefixHit, Request

CACHED, LEADER, FOLLOWER = range(3)
FIRST_FAIR_SHARE: Final = 0.3
WAIT_BUDGET_S: Final = 2.0


class Peek(Order):
    """PEEK's cluster scheduler, arXiv:2607.02525; xiexbing/peek, python/peek/online/lpm_integration.py.

    Two orders take turns, each with its share of the picks. By section (cached, leader, follower), both:
    one has prompts that share a beginning one after the other, groups by shared tokens times members, within
    them the longest hit first; the other is by arrival. The share of the second is ``0.15 + 0.5 x share of
    requests that share nothing + 0.3 x min(longest wait of these / 2 s, 1)``, from 0.1 to 0.6, smoothed.
    A queue without prompts that begin alike is in the order of lpm, up to 128. Every request is asked in
    every pass. Simplified: the tree of pending prompts is the trace's groups, and keeping it costs nothing.
    Left out: its eviction, which is a policy of its own.
    """

    def __init__(self) -> None:
        self._fair_share = FIRST_FAIR_SHARE

    def arrange(
        self, waiting: Sequence[Request], prefix_hit: PrefixHit, now_s: float
    ) -> Sequence[Request] | None:
        alike = Counter(request.group for request in waiting if request.shared_tokens)
        if all(count < 2 for count in alike.values()):
            if len(waiting) > LONG_QUEUE:
                return None
            hits = all_hits(waiting, prefix_hit)
            return sorted(waiting, key=lambda request: -hits[request])
        self._set_fair_share(waiting, alike, now_s)
        hits = all_hits(waiting, prefix_hit)
        put_off = followers(waiting, hits)
        sections = {
            request: CACHED if hits[request] > COLD_TOKENS else FOLLOWER if request in put_off else LEADER
            for request in waiting
        }
        by_group = _grouped(waiting, alike, sections, hits)
        by_arrival = sorted(
            waiting, key=lambda request: (sections[request], request.arrived_s, -hits[request])
        )
        return _interleaved(by_group, by_arrival, self._fair_share)

    def _set_fair_share(self, waiting: Sequence[Request], alike: Mapping[int, int], now_s: float) -> None:
        single = [request for request in waiting if alike.get(request.group, 0) < 2]
        longest_s = max((now_s - request.arrived_s for request in single), default=0.0)
        share = 0.15 + 0.5 * len(single) / len(waiting) + 0.3 * min(1.0, longest_s / WAIT_BUDGET_S)
        self._fair_share = 0.7 * self._fair_share + 0.3 * max(0.1, min(0.6, share))


def _grouped(
    waiting: Sequence[Request],
    alike: Mapping[int, int],
    sections: Mapping[Request, int],
    hits: Mapping[Request, int],
) -> list[Request]:
    """By section, then the group with the most shared tokens times members, the oldest of equal ones."""
    groups: dict[tuple[int, int, int], list[Request]] = {}
    for place, request in enumerate(waiting):
        is_alone = alike.get(request.group, 0) < 2
        # A request that shares nothing is a group of its own.
        name = (sections[request], 1, place) if is_alone else (sections[request], 0, request.group)
        groups.setdefault(name, []).append(request)

    def key(item: tuple[tuple[int, int, int], list[Request]]) -> tuple[int, int, float]:
        (section, is_alone, _), members = item
        weight = 0 if is_alone else members[0].shared_tokens * alike[members[0].group]
        return section, -weight, min(member.arrived_s for member in members)

    return [
        request
        for _, members in sorted(groups.items(), key=key)
        for request in sorted(members, key=lambda member: (-hits[member], member.arrived_s))
    ]


def _interleaved(first: Sequence[Request], second: Sequence[Request], second_share: float) -> list[Request]:
    """Stride scheduling: the next pick is of the order that has had fewer for its share."""
    strides = 1 / (1 - second_share), 1 / second_share
    clocks = list(strides)
    lanes = iter(first), iter(second)
    picked: dict[Request, None] = {}
    while len(picked) < len(first):
        lane = 0 if clocks[0] <= clocks[1] else 1
        request = next(request for request in lanes[lane] if request not in picked)
        picked[request] = None
        clocks[lane] += strides[lane]
    return list(picked)
