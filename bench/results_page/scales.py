"""From values to places along an axis, and where its ticks are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import asinh, ceil, floor, log10

from coresched.lab.report.svg import ticks


@dataclass(frozen=True)
class Scale:
    """``place(value)`` is 0 to 1 between both ends; ``ticks`` are (value, text)."""

    low: float
    high: float
    of: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]

    def place(self, value: float) -> float:
        """A value beyond an end is put on it."""
        first, last = self.of(self.low), self.of(self.high)
        return (self.of(min(max(value, self.low), self.high)) - first) / (last - first)


def percent_scale(values: Sequence[float]) -> Scale:
    """Percent that matter near 0 and may be large: linear to about 2, logarithmic beyond."""
    round_values = [
        0.0,
        *(sign * value for value in (1, 2, 5, 10, 20, 50, 100, 200, 500) for sign in (-1, 1)),
    ]
    low = max([value for value in round_values if value <= min(values)], default=min(values))
    high = min([value for value in round_values if value >= max(values)], default=max(values))
    low, high = min(low, -1.0), max(high, 1.0)
    shown = sorted(value for value in round_values if low <= value <= high)
    return Scale(
        low,
        high,
        lambda value: asinh(value / 2),
        tuple((value, f"{value:+g}" if value else "0") for value in shown),
    )


def linear_scale(low: float, high: float) -> Scale:
    """From ``low`` up, with round ticks."""
    steps = ticks(high - low)
    return Scale(low, high, lambda value: value, tuple((low + step, f"{low + step:g}") for step in steps))


def log_scale(values: Sequence[float], text: Callable[[float], str] = "{:g}".format) -> Scale:
    """Positive values between powers of ten, a tick at each."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    high = max(high, low + 1)
    return Scale(
        10.0**low,
        10.0**high,
        log10,
        tuple((10.0**power, text(10.0**power)) for power in range(low, high + 1)),
    )
