"""Curves over time, thinned to what a chart can show."""

from collections.abc import Iterable, Sequence

Points = list[tuple[float, float]]
"""(seconds, value), ascending in time."""


def completion_curve(completed: Sequence[float], samples: int, most: int = 400) -> Points:
    """Completed fraction of ``samples`` over time, a step at each of the ascending times ``completed``.

    At most ``most`` steps are kept, and both ends.
    """
    count = len(completed)
    if not count:
        return [(0.0, 0.0)]
    stride = max(1, count // most)
    picked = sorted({*range(0, count, stride), count - 1})
    points: Points = [(0.0, 0.0)]
    for position in picked:
        points.append((completed[position], points[-1][1]))
        points.append((completed[position], (position + 1) / samples))
    return points


def in_flight_curves(
    changes: Iterable[tuple[float, int, int]], workers: int, end_s: float, bins: int = 240
) -> list[Points]:
    """Mean requests in flight on each worker in each of ``bins`` equal spans of 0 to ``end_s``.

    A change is (seconds, worker from 0, +1 or -1); changes are in order of time.
    """
    width = end_s / bins
    sums = [[0.0] * bins for _ in range(workers)]
    level = [0] * workers
    since = [0.0] * workers

    def add(worker: int, until: float) -> None:
        if level[worker]:
            for position in range(int(since[worker] / width), min(int(until / width), bins - 1) + 1):
                overlap = min(until, (position + 1) * width) - max(since[worker], position * width)
                sums[worker][min(position, bins - 1)] += level[worker] * max(0.0, overlap)
        since[worker] = until

    for t, worker, change in changes:
        add(worker, t)
        level[worker] += change
    return [[((position + 0.5) * width, total / width) for position, total in enumerate(row)] for row in sums]


def total_curve(curves: list[Points]) -> Points:
    """The sum of curves that share their times."""
    return [(row[0][0], sum(value for _, value in row)) for row in zip(*curves, strict=True)]
