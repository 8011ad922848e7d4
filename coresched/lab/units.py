"""Numbers as people read them."""


class TimeUnit:
    """One unit for all times of a table or chart, chosen by the largest of them."""

    def __init__(self, largest_s: float) -> None:
        self.name, self.seconds = next(
            (name, seconds) for name, seconds, up_to in UNITS if largest_s < up_to or name == "h"
        )

    def scale(self, seconds: float) -> float:
        return seconds / self.seconds

    def text(self, seconds: float) -> str:
        value = self.scale(seconds)
        return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}"


UNITS = (("s", 1.0, 180.0), ("min", 60.0, 3000 * 60.0), ("h", 3600.0, 0.0))


def count_text(count: float) -> str:
    """A count with at most four digits and a suffix: 1234567 is 1.23M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            return f"{count / size:.3g}{suffix}"
    return f"{count:.0f}"


def percent_text(fraction: float | None, digits: int = 1) -> str:
    """A fraction as a percentage; a dash when there is none."""
    return "-" if fraction is None else f"{unsigned_zero(fraction * 100, digits):.{digits}f} %"


def unsigned_zero(value: float, digits: int) -> float:
    """The value, or 0 where so many digits would show it as -0."""
    return 0.0 if abs(value) < 0.5 / 10**digits else value


def saved_text(value: float, reference: float) -> str:
    """How much smaller than the reference, in percent of it; negative when it is larger."""
    saved = (1 - value / reference) * 100
    return f"{unsigned_zero(saved, 1):.1f} %"
