"""The continuous capacity model: how many trajectories two cache pools hold, and what balances them.

All memory is counted in KV tokens: M for the pools together, F_kv = L_kv for the KV entries of a complete
trajectory, F_state for the recurrent-state slots one request needs.
"""

from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True)
class PoolBalance:
    """One worker's memory against one workload's footprint.

    ``pool_tokens`` M, ``trajectory_tokens`` F_kv and ``state_tokens`` F_state are KV-token equivalents.
    Raises ValueError naming the field when one is not a positive finite number.
    """

    pool_tokens: float
    trajectory_tokens: float
    state_tokens: float

    def __post_init__(self) -> None:
        for name in ("pool_tokens", "trajectory_tokens", "state_tokens"):
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value!r}; it must be a positive finite number")

    @property
    def ratio(self) -> float:
        """r_bal = F_state / F_kv: state memory over KV memory with which both pools fill up together."""
        return self.state_tokens / self.trajectory_tokens

    def capacity(self, ratio: float) -> float:
        """C(r) = min(C_kv, C_state): trajectories that fit, with M r/(1+r) for states and M/(1+r) for KV."""
        if not (isfinite(ratio) and ratio > 0):
            raise ValueError(f"ratio is {ratio!r}; it must be a positive finite number")
        kv_pool = self.pool_tokens / (1 + ratio)
        state_pool = self.pool_tokens * ratio / (1 + ratio)
        return min(kv_pool / self.trajectory_tokens, state_pool / self.state_tokens)
