"""How many trajectories one worker can hold at once: four estimators."""

import random
from dataclasses import dataclass
from math import ceil, floor
from typing import Literal, Protocol

from coresched.capacity.balance import PoolBalance
from coresched.capacity.demand import Demand, Footing, Replay
from coresched.capacity.profile import WorkloadProfile, shuffled

Estimator = Literal["peak", "kappa", "paper"]
Limit = Literal["kv", "state", "memory", "batch"]

DEFAULT_MARGIN = 0.05
RESAMPLES = 5
ORDERS = 3
"""Submission orders that the peak estimate must hold for: the given one and two shuffles."""


class Pools(Protocol):
    """One worker's discrete memory, as `estimate_peak` asks about it."""

    @property
    def footing(self) -> Footing: ...

    def fits(self, demand: Demand) -> bool:
        """Whether the worker's pools can hold the demand, KV and state together."""

    def limit(self, demand: Demand) -> Limit:
        """What a demand that does not fit runs out of."""


@dataclass(frozen=True)
class PeakEstimate:
    """C*: the most trajectories one worker holds without losing a cache entry that is needed again.

    ``demand`` is the worst over the orders at C*, with the margin. ``limit`` is what one more would exceed;
    "batch" when the whole workload fits at once.
    """

    concurrency: int
    demand: Demand
    limit: Limit


def estimate_peak(
    profile: WorkloadProfile,
    pools: Pools,
    margin: float = DEFAULT_MARGIN,
    *,
    orders: int = ORDERS,
    guess: int | None = None,
) -> PeakEstimate | None:
    """The largest C whose replayed peak demand, raised by ``margin``, fits; None when not even one does.

    Found by bisection over C, in the worst of ``orders`` submission orders at each; a ``guess`` near the
    answer makes it faster. C fits and C + 1 does not; as the peak is not strictly monotone in C, a larger
    one further up may fit again. Without a guess, more memory never gives less.
    """
    most = len(profile.chains)
    worst = _Worst(profile, pools, margin, orders)
    if guess is None:
        low, high = (1, most) if worst.fits(1) else (0, 1)
        if low and worst.fits(most):
            low = most
    else:
        low, high = _bracket(worst, max(1, min(guess, most)), most)
    if low == 0:
        return None
    if low == most:
        return PeakEstimate(most, worst.demand(most), "batch")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if worst.fits(middle) else (low, middle)
    return PeakEstimate(low, worst.demand(low), pools.limit(worst.demand(high)))


class _Worst:
    """Demands over several submission orders, each replayed when first asked for."""

    def __init__(self, profile: WorkloadProfile, pools: Pools, margin: float, orders: int) -> None:
        self._pools, self._margin = pools, margin
        self._replay = Replay(profile.chains, pools.footing)
        self._samples = len(profile.chains)
        numbers = range(self._samples)
        self._orders = [shuffled(numbers, order) for order in range(orders)]
        self._found: dict[tuple[int, int], Demand] = {}

    def fits(self, concurrency: int) -> bool:
        # Order by order, so that most answers of "no" take one replay; the last asks for all of them.
        return all(
            self._pools.fits(self._over(concurrency, orders)) for orders in range(1, len(self._orders) + 1)
        )

    def demand(self, concurrency: int) -> Demand:
        return self._over(concurrency, len(self._orders))

    def _over(self, concurrency: int, orders: int) -> Demand:
        demands = [self._of(concurrency, order) for order in range(orders)]
        admitted = min(concurrency, self._samples)
        return _raised(demands, self._margin, _all_running(self._pools.footing, admitted))

    def _of(self, concurrency: int, order: int) -> Demand:
        if (concurrency, order) not in self._found:
            self._found[concurrency, order] = self._replay.peak(concurrency, self._orders[order])
        return self._found[concurrency, order]


def _bracket(worst: _Worst, guess: int, most: int) -> tuple[int, int]:
    """(a C that fits or 0, the next known one that does not), found from the guess outwards."""
    step = max(1, guess // 16)
    if worst.fits(guess):
        low = guess
        while low < most:
            high = min(most, low + step)
            if not worst.fits(high):
                return low, high
            low, step = high, step * 2
        return most, most
    high = guess
    while high > 1:
        low = max(1, high - step)
        if worst.fits(low):
            return low, high
        high, step = low, step * 2
    return 0, 1


def _all_running(footing: Footing, trajectories: int) -> int:
    """State units of so many trajectories when none of them waits: the most they can ever hold."""
    return trajectories * max(footing.running_units, footing.idle_units)


def _raised(demands: list[Demand], margin: float, all_running: int) -> Demand:
    """Each peak's largest value, raised by the margin.

    The margin stands for contexts and moments that the profile did not show; more trajectories than are
    admitted cannot run, so states are raised to ``all_running`` at most.
    """
    kv_units = ceil(max(demand.kv_units for demand in demands) * (1 + margin))
    state_units = min(all_running, ceil(max(demand.state_units for demand in demands) * (1 + margin)))
    units = ceil(max(demand.units for demand in demands) * (1 + margin))
    return Demand(
        kv_units=kv_units,
        state_units=state_units,
        units=min(kv_units + state_units, units),
        running=max(demand.running for demand in demands),
    )


def worst_demand(profile: WorkloadProfile, concurrency: int, footing: Footing, margin: float) -> Demand:
    """Each peak's largest value over the ORDERS submission orders, raised by ``margin`` and rounded up."""
    samples = len(profile.chains)
    replay = Replay(profile.chains, footing)
    return _raised(
        [replay.peak(concurrency, shuffled(range(samples), order)) for order in range(ORDERS)],
        margin,
        _all_running(footing, min(concurrency, samples)),
    )


def peak_range(
    profile: WorkloadProfile,
    pools: Pools,
    margin: float = DEFAULT_MARGIN,
    *,
    guess: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 1,
) -> tuple[int, int]:
    """The smallest and largest C* over bootstrap resamples: how far the profile pins the estimate down.

    Each is estimated like the workload itself, in the worst of the same number of orders.
    """
    rng = random.Random(seed)
    found = [estimate_peak(profile.resampled(rng), pools, margin, guess=guess) for _ in range(resamples)]
    counts = [0 if estimate is None else estimate.concurrency for estimate in found]
    return min(counts), max(counts)


def estimate_paper(balance: PoolBalance) -> tuple[float, int]:
    """(r_bal, floor(C(r_bal))): mean final context, continuous pools."""
    return balance.ratio, floor(balance.capacity(balance.ratio))


def estimate_kappa(balance: PoolBalance, kappa: float) -> tuple[float, int]:
    """The same with the time-averaged active context kappa L_kv in place of the final one."""
    return estimate_paper(
        PoolBalance(balance.pool_tokens, kappa * balance.trajectory_tokens, balance.state_tokens)
    )


def estimate_requests(balance: PoolBalance, mean_request_tokens: float) -> tuple[float, int]:
    """The same with the mean over requests, L_req: r' = F_state / L_req, C' = M / (L_req + F_state)."""
    return estimate_kappa(balance, mean_request_tokens / balance.trajectory_tokens)
