"""What is killed, and when: drawn from the seed before the run begins."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Target = Literal["service", "worker", "harness", "stall"]
"""What is killed (SIGKILL), and for "stall" a harness process stopped for longer than its grace period."""

Counts = Mapping[Target, int]


@dataclass(frozen=True, slots=True)
class Fault:
    """`at_finished`: samples that are finished when it is due. `delay_s` goes by from then on."""

    target: Target
    at_finished: int
    delay_s: float


def draw(counts: Counts, samples: int, chance: random.Random) -> list[Fault]:
    """In the order in which they are due; none in the last tenth, of which little may be left to disturb."""
    faults = [
        Fault(target, int(samples * chance.uniform(0, 0.9)), chance.uniform(0, 0.3))
        for target, count in counts.items()
        for _ in range(count)
    ]
    return sorted(faults, key=lambda fault: fault.at_finished)
