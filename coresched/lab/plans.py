"""Where each estimator sets a simulated worker: its state ratio and its sample concurrency."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from coresched.capacity.balance import PoolBalance
from coresched.capacity.demand import Demand, Footing
from coresched.capacity.estimate import (
    Limit,
    estimate_kappa,
    estimate_paper,
    estimate_peak,
    estimate_requests,
)
from coresched.capacity.profile import WorkloadProfile
from coresched.errors import InputError
from coresched.lab.simulator.memory import SLOT_UNITS, split_memory
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


class SplitPools:
    """A simulated worker's memory to `estimate_peak` when its split is given."""

    def __init__(self, model: WorkerModel, ratio: float) -> None:
        self._memory = split_memory(model, ratio)
        self.footing = WorkerPools(model).footing

    def fits(self, demand: Demand) -> bool:
        """Each demand within its own pool."""
        memory = self._memory
        return (
            demand.kv_units <= memory.pages
            and demand.state_units * SLOT_UNITS <= memory.slot_units
            and demand.running <= memory.max_running
        )

    def limit(self, demand: Demand) -> Limit:
        return "kv" if demand.kv_units > self._memory.pages else "state"


class OnePool:
    """Memory of an engine that has one pool for KV and states, to `estimate_peak`; units are KV tokens."""

    def __init__(self, model: WorkerModel) -> None:
        self._model = model
        page = model.page_tokens
        self.footing = Footing(
            kv_units=lambda tokens: ceil(tokens / page) * page,
            shared_units=lambda tokens: tokens // page * page,
            running_units=model.request_state_tokens,
            idle_units=model.request_state_tokens // model.slots_per_request,
        )

    def fits(self, demand: Demand) -> bool:
        """The largest demand for both at one moment, and the requests that the engine runs."""
        model = self._model
        return demand.units <= model.pool_tokens and demand.running <= model.max_running_requests

    def limit(self, demand: Demand) -> Limit:
        return "memory"


def by_pool(profile: WorkloadProfile, model: WorkerModel, guess: int | None = None) -> Point:
    """The default estimate where KV and states share one pool, as `coresched plan` makes it for vLLM.

    There is no ratio to choose. Raises InputError when not even one trajectory fits.
    """
    estimate = estimate_peak(profile, OnePool(model), guess=guess)
    if estimate is None:
        raise _nothing_fits(model)
    return Point(model.default_state_ratio, estimate.concurrency)


def by_peak(profile: WorkloadProfile, model: WorkerModel, guess: int | None = None) -> Point:
    """The default estimate: slots set outright to the demand, the rest KV.

    Raises InputError when not even one trajectory fits.
    """
    pools = WorkerPools(model)
    estimate = estimate_peak(profile, pools, guess=guess)
    if estimate is None:
        raise _nothing_fits(model)
    return Point(pools.ratio(estimate.demand.state_units), estimate.concurrency)


def at_ratio(profile: WorkloadProfile, model: WorkerModel, ratio: float, guess: int | None = None) -> Point:
    """The same when r is given. Raises InputError when not even one trajectory fits."""
    estimate = estimate_peak(profile, SplitPools(model, ratio), guess=guess)
    if estimate is None:
        raise _nothing_fits(model, f" at state_ratio {ratio:g}")
    return Point(ratio, estimate.concurrency)


def _nothing_fits(model: WorkerModel, where: str = "") -> InputError:
    return InputError(
        f"worker model {model.name!r} has pool_tokens {model.pool_tokens}; with the margin not one "
        f"trajectory of the "
        f"workload fits{where}; use a model with more memory"
    )


def by_kappa(profile: WorkloadProfile, model: WorkerModel) -> Point:
    """r_bal and floor(C(r_bal)) for the time-averaged active context."""
    return Point(*estimate_kappa(_balance(profile, model), profile.kappa))


def by_requests(profile: WorkloadProfile, model: WorkerModel) -> Point:
    """r_bal and floor(C(r_bal)) for the mean context over requests, which long trajectories have more of."""
    return Point(*estimate_requests(_balance(profile, model), profile.mean_request_tokens))


def by_paper(profile: WorkloadProfile, model: WorkerModel) -> Point:
    """r_bal and floor(C(r_bal)) for the mean final context."""
    return Point(*estimate_paper(_balance(profile, model)))


def _balance(profile: WorkloadProfile, model: WorkerModel) -> PoolBalance:
    return PoolBalance(model.pool_tokens, profile.mean_final_tokens, model.request_state_tokens)
