"""The benchmarked operations, each with the subjects that do it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bench.timing import Subject

TWIN = "python-twin"


class Scale(Enum):
    """How large the structures get: as asked for, to see that it runs, or to count instructions."""

    FULL = "full"
    QUICK = "quick"
    COUNTED = "counted"


@dataclass(frozen=True)
class Case:
    """One operation at one size; the peers do the same job from the same inputs."""

    name: str
    n: int
    ours: Subject
    peers: Mapping[str, Subject]
