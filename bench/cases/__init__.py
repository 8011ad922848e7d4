"""The benchmarked operations, each with the subjects that do it."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.timing import Subject

TWIN = "python-twin"


@dataclass(frozen=True)
class Case:
    """One operation at one size; the peers do the same job from the same inputs."""

    name: str
    n: int
    ours: Subject
    peers: Mapping[str, Subject]
