"""How long samples took before: the history file by which the longest expected are admitted first.

JSON lines: the task, and how long it took as one of UNITS, the same in every line. A task on several lines
took their mean.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal, cast, get_args
from urllib.parse import unquote

import msgspec

from coresched.batch.admission import check_expected
from coresched.core.checks import check_label
from coresched.errors import InputError
from coresched.files import write_whole

Unit = Literal["seconds", "output_tokens", "turns"]
UNITS: Final[tuple[Unit, ...]] = get_args(Unit)
"""Seconds are those of inference and environment stages, without waits for slots."""

LONGEST: Final = 1e15
"""What a line can say at most, in any unit."""

Given = str | os.PathLike[str] | Mapping[str, float]

_OF_INSPECT = re.compile(r"/epoch-\d+/attempt-\d+/[^/]+$")
_ATTEMPT = re.compile(r"(_epoch_\d+)?([#~]\d+)*(@[0-9a-f]{6})?$")

_logger = logging.getLogger("coresched.client")


def task_of(sample: str) -> str:
    """What attempts at one task have in common: the sample's name without what adapters add for each attempt.

    Of inspect's that is the sample's id: in a log it stands without its task's name.

    >>> task_of("django-11099#2@3fa9c1"), task_of("gaia/17/epoch-1/attempt-1/Vx8"), task_of("17_epoch_2")
    ('django-11099', '17', '17')
    """
    if _OF_INSPECT.search(sample):
        return unquote(_OF_INSPECT.sub("", sample).partition("/")[2])
    return _ATTEMPT.sub("", sample, count=1) or sample


class History:
    """What is expected of samples, by their names or by the tasks that they are attempts at."""

    def __init__(self, lengths: Mapping[str, float], source: str = "the history") -> None:
        """``lengths`` in any one unit. Raises TypeError or ValueError for a name or a length that is none."""
        for name, length in lengths.items():
            check_label(name, "history: a sample's name")
            try:
                check_expected(length)
            except (TypeError, ValueError) as error:
                raise type(error)(f"history of {name!r}: {error}") from None
        self._lengths = dict(lengths)
        self._source = source
        self._warned = False

    def expected(self, sample: str) -> float | None:
        """The length expected of a sample; None, and a warning the first time, where nothing is known."""
        for name in (sample, task_of(sample)):
            if name in self._lengths:
                return self._lengths[name]
        if not self._warned and self._lengths:
            self._warned = True
            _logger.warning(
                "%s knows nothing of sample %r (task %r); such samples are admitted as if they were of "
                "median length",
                self._source,
                sample,
                task_of(sample),
            )
        return None


def history_of(admission_policy: str, given: Given | None) -> History | None:
    """The history of a batch: of a file, or lengths by name. None in submission order.

    Raises InputError where the policy has no history or the history no policy that reads it, and for a file
    that is none; TypeError for anything else.
    """
    if admission_policy != "longest-expected-first":
        if given is not None:
            raise InputError(
                'history is for admission_policy "longest-expected-first"; set that too, or leave history out'
            )
        return None
    if given is None:
        raise InputError(
            'history must be given with admission_policy "longest-expected-first": a file of '
            "`coresched trace history`, or a mapping from sample to length"
        )
    if isinstance(given, Mapping):
        return History(given)
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"history must be a path or a mapping, got {given!r} of type {type(given).__name__}")
    return read_history(given)


def read_history(path: str | os.PathLike[str]) -> History:
    """Raises InputError naming the file, the line and the fix."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"history {str(path)!r} cannot be read: {error.strerror}; check the path") from None
    lengths: defaultdict[str, list[float]] = defaultdict(list)
    unit: Unit | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"history {str(path)!r}, line {number}"
        task, found, length = _entry(line, place)
        if unit is not None and found != unit:
            raise InputError(
                f"{place}: {found}, while the lines before have {unit}; write the file in one unit, with "
                "`coresched trace history --by`"
            )
        unit = found
        lengths[task].append(length)
    if not lengths:
        raise InputError(f"history {str(path)!r} has no line; write it with `coresched trace history`")
    means = {task: fmean(several) for task, several in lengths.items()}
    return History(means, f"history {str(path)!r}")


def write_history(path: Path, lengths: Mapping[str, float], unit: Unit, field: str) -> None:
    """Write a history file, whole or not at all. Raises InputError naming ``field`` when it cannot be."""
    lines = [json.dumps({"task": task, unit: length}) + "\n" for task, length in lengths.items()]
    write_whole(path, "".join(lines), field)


def _entry(line: bytes, place: str) -> tuple[str, Unit, float]:
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{place}: not JSON ({error}); each line is one object, or empty") from None
    form = f'give {{"task": NAME, UNIT: NUMBER}} with a UNIT of {", ".join(UNITS)}'
    if not isinstance(fields, dict):
        raise InputError(f"{place}: no JSON object; {form}")
    entry = cast(dict[str, Any], fields)
    units = [name for name in entry if name != "task"]
    if "task" not in entry or len(units) != 1 or units[0] not in UNITS:
        raise InputError(f"{place}: its fields are {', '.join(map(repr, entry)) or 'none'}; {form}")
    length = entry[units[0]]
    if isinstance(length, bool) or not isinstance(length, int | float) or not 0 <= length <= LONGEST:
        raise InputError(f"{place}: {units[0]} is {length!r:.40}; give a number from 0 to {LONGEST:g}")
    try:
        task = check_label(entry["task"], "task")
    except (TypeError, ValueError) as error:
        raise InputError(f"{place}: {error}") from None
    return task, units[0], float(length)
