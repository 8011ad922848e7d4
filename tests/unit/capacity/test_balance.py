"""The continuous capacity model against its equations."""

import pytest

from coresched.capacity.balance import PoolBalance

# M = 7.6M tokens, F_kv = 76,000, F_state = 6,840: the published SWE operating point.
BALANCE = PoolBalance(pool_tokens=7_600_000, trajectory_tokens=76_000, state_tokens=6_840)


def test_balanced_ratio_fills_both_pools_together() -> None:
    assert BALANCE.ratio == pytest.approx(0.09)
    assert BALANCE.capacity(0.09) == pytest.approx(7_600_000 / (76_000 + 6_840))


def test_capacity_is_what_the_smaller_pool_holds() -> None:
    assert BALANCE.capacity(0.9) == pytest.approx(7_600_000 / 1.9 / 76_000)
    assert BALANCE.capacity(0.045) == pytest.approx(7_600_000 * 0.045 / 1.045 / 6_840)


@pytest.mark.parametrize("field", ["pool_tokens", "trajectory_tokens", "state_tokens"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_bad_fields_are_named(field: str, value: float) -> None:
    fields = {"pool_tokens": 1.0, "trajectory_tokens": 1.0, "state_tokens": 1.0, field: value}
    with pytest.raises(ValueError, match=f"{field} is {value!r}"):
        PoolBalance(**fields)


@pytest.mark.parametrize("ratio", [0, -0.1, float("nan"), float("inf")])
def test_bad_ratio_is_named(ratio: float) -> None:
    with pytest.raises(ValueError, match="ratio is"):
        BALANCE.capacity(ratio)
