"""Where each estimator sets a simulated worker: its state ratio and its sample concurrency."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from coresched.capacity.balance import PoolBalance
from coresched.capacity.demand import Demand, Footing
from coresched.capacity.estimate import Limit, estimate_kappa, estimate_paper, estimate_peak
from coresched.capacity.profile import WorkloadProfile
from coresched.lab.simulator.model import WorkerModel

# What floor(M r/(1+r)) loses to rounding must not cost the last slot; a KV token at most pays for it.
ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Point:
    """One worker's configuration: r and C_S."""

    ratio: float
    concurrency: int


class WorkerPools:
    """A simulated worker's memory to `estimate_peak`: M, however split into KV pages and state slots."""

    def __init__(self, model: WorkerModel) -> None:
        self.model = model
        page = model.page_tokens
        self.footing = Footing(
            kv_units=lambda tokens: ceil(tokens / page),
            shared_units=lambda tokens: tokens // page,
            running_units=model.slots_per_request,
            idle_units=1,
        )

    @property
    def slot_tokens(self) -> float:
        """KV tokens that one state slot costs."""
        return self.model.request_state_tokens / self.model.slots_per_request

    def fits(self, demand: Demand) -> bool:
        """Both demands within M, and no more running requests than the worker allows."""
        kv_tokens = demand.kv_units * self.model.page_tokens
        return (
            kv_tokens + demand.state_units * self.slot_tokens <= self.model.pool_tokens
            and demand.running <= self.model.max_running_requests
        )

    def limit(self, demand: Demand) -> Limit:
        """Memory as a whole: the split between the pools follows the demand."""
        return "memory"

    def ratio(self, slots: int) -> float:
        """r that makes ``slots`` state slots and leaves the rest to KV: K f / (M - K f)."""
        state_tokens = slots * self.slot_tokens
        return state_tokens / (self.model.pool_tokens - state_tokens) * (1 + ROUNDING)


def by_peak(profile: WorkloadProfile, model: WorkerModel) -> Point:
    """The default estimate: slots set outright to the demand, the rest KV.

    Raises ValueError when not even one trajectory fits.
    """
    pools = WorkerPools(model)
    estimate = estimate_peak(profile, pools)
    if estimate is None:
        raise ValueError(f"pool_tokens is {model.pool_tokens}; no trajectory of the profile fits alone")
    return Point(pools.ratio(estimate.demand.state_units), estimate.concurrency)


def by_kappa(profile: WorkloadProfile, model: WorkerModel) -> Point:
    """r_bal and floor(C(r_bal)) for the time-averaged active context."""
    return Point(*estimate_kappa(_balance(profile, model), profile.kappa))


def by_paper(profile: WorkloadProfile, model: WorkerModel) -> Point:
    """r_bal and floor(C(r_bal)) for the mean final context."""
    return Point(*estimate_paper(_balance(profile, model)))


def _balance(profile: WorkloadProfile, model: WorkerModel) -> PoolBalance:
    return PoolBalance(model.pool_tokens, profile.mean_final_tokens, model.request_state_tokens)
