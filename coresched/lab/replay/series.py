"""Several runs of a command: in which order, and what of them is in the folder around theirs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from coresched import __version__
from coresched.errors import InputError
from coresched.files import write_whole
from coresched.lab.replay.plan import ReplaySettings
from coresched.lab.replay.record import Place
from coresched.lab.replay.spread import Repeated, spreads_as_json

COMPARISON: Final = "comparison.json"


@dataclass(frozen=True)
class Series:
    """What a command runs. ``settings`` are those of each configuration, the first being the reference."""

    settings: Mapping[str, ReplaySettings]
    repeat: int
    alternate: bool
    flush_cache: bool
    digest: str

    def places(self) -> list[Place]:
        """The runs in order: A A B B or, to alternate, A B B A A B, which cancels a steady drift."""
        rounds, names = range(1, self.repeat + 1), list(self.settings)
        if not self.alternate:
            return [Place(name, number) for name in names for number in rounds]
        return [Place(name, n) for n in rounds for name in (names if n % 2 else reversed(names))]


def run_name(place: Place) -> str:
    """The name of a run's folder."""
    return f"{place.configuration}-{place.round}"


def write_comparison(folder: Path, series: Series, groups: Sequence[Repeated]) -> dict[str, Any]:
    """Medians and spread of the runs so far, and which are to come; returns what was written."""
    values = {
        "version": __version__,
        "workload_digest": series.digest,
        "repeat": series.repeat,
        "alternate": series.alternate,
        "flush_cache": series.flush_cache,
        "order": [run_name(place) for place in series.places()],
        "configurations": [
            spreads_as_json(group, groups[0]) | {"settings": asdict(series.settings[group.name])}
            for group in groups
        ],
    }
    write_whole(folder / COMPARISON, json.dumps(values, indent=2) + "\n", "--output")
    return values


class _Comparison(msgspec.Struct):
    order: list[str]


@dataclass(frozen=True)
class Begun:
    """The runs of a command that were begun, and the names of those that were not, in their order."""

    folders: list[Path]
    missing: list[str]


def runs_in(folder: Path) -> Begun | None:
    """The runs of a command; None where ``folder`` is not one's. Raises InputError if none was begun."""
    try:
        content = (folder / COMPARISON).read_bytes()
    except OSError:
        return None
    try:
        order = msgspec.json.decode(content, type=_Comparison).order
    except msgspec.DecodeError as error:
        raise InputError(f"{str(folder / COMPARISON)!r} is not what a replay writes: {error}") from None
    begun = [name for name in order if os.path.exists(folder / name / "run.json")]
    if not begun:
        raise InputError(f"{str(folder)!r} has no run; nothing was replayed")
    return Begun([folder / name for name in begun], [name for name in order if name not in begun])
