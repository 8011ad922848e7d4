"""How many trajectories one worker can hold at once: three estimators."""

import random
from dataclasses import dataclass
from math import ceil, floor
from typing import Literal, Protocol

from coresched.capacity.balance import PoolBalance
from coresched.capacity.demand import Demand, Footing, peak_demand
from coresched.capacity.profile import WorkloadProfile, shuffled

Estimator = Literal["peak", "kappa", "paper"]
Limit = Literal["kv", "state", "memory", "batch"]

DEFAULT_MARGIN = 0.05
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
    profile: WorkloadProfile, pools: Pools, margin: float = DEFAULT_MARGIN
) -> PeakEstimate | None:
    """The largest C whose replayed peak demand, raised by ``margin``, fits; None when not even one does.

    Found by bisection over C, the worst of ORDERS submission orders at each. C fits and C + 1 does not; as
    the peak is not strictly monotone in C, a larger one further up may fit again. More memory never gives
    less.
    """
    most = len(profile.chains)
    demands: dict[int, Demand] = {}

    def fits(concurrency: int) -> bool:
        demands[concurrency] = worst_demand(profile, concurrency, pools.footing, margin)
        return pools.fits(demands[concurrency])

    if not fits(1):
        return None
    if fits(most):
        return PeakEstimate(most, demands[most], "batch")
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return PeakEstimate(low, demands[low], pools.limit(demands[high]))


def worst_demand(profile: WorkloadProfile, concurrency: int, footing: Footing, margin: float) -> Demand:
    """Each peak's largest value over the submission orders, raised by ``margin`` and rounded up.

    The margin stands for contexts and moments that the profile did not show. Running trajectories are not
    raised: more than ``concurrency`` cannot run. So state is raised to at most what they all hold while
    running.
    """
    demands = [peak_demand(shuffled(profile.chains, order), concurrency, footing) for order in range(ORDERS)]
    all_running = min(concurrency, len(profile.chains)) * max(footing.running_units, footing.idle_units)
    kv_units = ceil(max(demand.kv_units for demand in demands) * (1 + margin))
    state_units = min(all_running, ceil(max(demand.state_units for demand in demands) * (1 + margin)))
    return Demand(
        kv_units=kv_units,
        state_units=state_units,
        units=min(kv_units + state_units, ceil(max(demand.units for demand in demands) * (1 + margin))),
        running=max(demand.running for demand in demands),
    )


def peak_range(
    profile: WorkloadProfile, pools: Pools, margin: float = DEFAULT_MARGIN, resamples: int = 8, seed: int = 1
) -> tuple[int, int]:
    """The smallest and largest C* over bootstrap resamples: how far the profile pins the estimate down."""
    rng = random.Random(seed)
    found = [estimate_peak(profile.resampled(rng), pools, margin) for _ in range(resamples)]
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
