"""Times in recordings, and the rules for clocks that cannot have been right.

A time of 0, before the year 2000 or that cannot be read counts as not recorded. So does a duration that ends
before it starts, and it is reported: to call it 0 would be to claim a measurement.
"""

import math
from collections.abc import Iterable
from datetime import datetime, timezone

from coresched.trajectory.refusal import MAX_SECONDS

_YEAR_2000 = 946_684_800.0


def instant(value: object) -> float | None:
    """Unix seconds of an ISO 8601 text (without an offset: UTC) or of a number of seconds."""
    if isinstance(value, str):
        try:
            # Python 3.10 reads neither Z nor nanoseconds.
            text = value.strip().replace("Z", "+00:00")
            head, dot, rest = text.partition(".")
            if dot:
                digits = len(rest) - len(rest.lstrip("0123456789"))
                text = f"{head}.{rest[:digits][:6].ljust(6, '0')}{rest[digits:]}"
            read = datetime.fromisoformat(text)
            value = (read if read.tzinfo else read.replace(tzinfo=timezone.utc)).timestamp()
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _YEAR_2000 <= value < math.inf:
        return None
    return float(value)


def gap(start: float | None, end: float | None, what: str, anomalies: list[str]) -> float | None:
    """Seconds from start to end; None, and a clause in `anomalies`, where the end lies before the start."""
    if start is None or end is None:
        return None
    return duration(end - start, what, anomalies)


def duration(seconds: float | None, what: str, anomalies: list[str]) -> float | None:
    """A recorded duration; None, and a clause in `anomalies`, where it is negative or over 31 years."""
    if seconds is None or 0 <= seconds <= MAX_SECONDS:
        return None if seconds is None else round(seconds, 6)
    anomalies.append(f"{what} lasts {seconds:.3f} s")
    return None


def busy_seconds(intervals: Iterable[tuple[float, float]]) -> float:
    """Seconds in which at least one interval runs.

    Tool calls side by side count once, so that a stage of parallel calls lasts as long as the longest; calls
    one after the other add up.
    """
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return round(total, 6)
