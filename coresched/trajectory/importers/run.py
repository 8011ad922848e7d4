"""Imports files: the samples that can be read, an account of the others, and what the figures are worth."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from coresched.errors import InputError
from coresched.recording.reader import recording_files
from coresched.trajectory.importers.assembly import assemble
from coresched.trajectory.importers.document import open_document
from coresched.trajectory.importers.formats import importer_named, recognise
from coresched.trajectory.importers.recording import Malformed, Sample, Skipped
from coresched.trajectory.importers.tokens import BY_BYTES, TokenCounter
from coresched.trajectory.refusal import MAX_NAME_BYTES
from coresched.trajectory.schema import Trajectory


@dataclass
class ImportReport:
    """What an import did, filled while its trajectories are taken."""

    trajectories: int = 0
    turns: int = 0
    files: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    """Trajectories by format."""
    skipped: list[str] = field(default_factory=list)
    """One line for each record that was not imported: file, position, why."""
    tokens: Counter[str] = field(default_factory=Counter)
    """Trajectories by where their token counts come from; the next two by turns and by stages."""
    inference: Counter[str] = field(default_factory=Counter)
    environment: Counter[str] = field(default_factory=Counter)
    anomalies: list[str] = field(default_factory=list)
    """One line for each time that was left out because a clock cannot have been right."""
    compacted: int = 0
    """Samples whose context was given up and begun anew: each part is a trajectory."""
    overstated: int = 0
    """Trajectories with a prompt that is shorter than the one before, which is imported too long."""
    overstated_tokens: int = 0
    """By how much at the most."""
    cut_short: int = 0
    """Samples that did not complete, imported up to where they ended."""


def import_traces(
    paths: Iterable[str | Path],
    report: ImportReport,
    form: str | None = None,
    count: TokenCounter = BY_BYTES,
) -> Iterator[Trajectory]:
    """Yields the trajectories of recordings of other tools, and fills `report`.

    A path may be the folder of a replay or of a recording. `form` is one of FORMATS; None: each file's is
    detected. An id that was there before gets `~2`, `~3` and so on. Raises InputError for an unknown format
    and a file that cannot be opened, before any work; and at the end if there was nothing that could be
    imported.
    """
    names: Sequence[str] = [recording(os.fspath(path)) for path in paths]
    importer_named(form) if form is not None else None
    for name in names:
        _require_file(name)
    seen: Counter[str] = Counter()
    for name in names:
        report.files += 1
        for sample in _samples(name, report, form, count):
            for trajectory in sample:
                yield _with_own_id(trajectory, seen)
    if not report.trajectories:
        more = f" (and {len(report.skipped) - 1} more)" if len(report.skipped) > 1 else ""
        why = report.skipped[0] if report.skipped else f"{names[0]}: there is no sample in it"
        fix = "" if form is None else f"; is it {form}? Without --from its format is told by what is in it"
        raise InputError(f"nothing was imported: {why}{more}{fix}")


def _samples(
    name: str, report: ImportReport, form: str | None, count: TokenCounter
) -> Iterator[list[Trajectory]]:
    try:
        document = open_document(name)
        importer = importer_named(form) if form is not None else recognise(document)
        for item in importer.samples(document, count):
            place = f"{name}, {item.where}" if item.where else name
            if isinstance(item, Skipped):
                report.skipped.append(f"{place}: {item.why}")
                continue
            try:
                parts = assemble(item, importer, count)
            except InputError as error:
                report.skipped.append(f"{place}: {error}")
                continue
            _account(report, item, parts, place)
            yield parts
    except Malformed as error:
        report.skipped.append(f"{name}: {error}")
    except InputError as error:  # a line too long, compressed data cut off: it names the file
        report.skipped.append(str(error))


def _account(report: ImportReport, sample: Sample, parts: list[Trajectory], place: str) -> None:
    report.compacted += len(parts) > 1
    report.cut_short += sample.meta.get("completed") is False
    report.anomalies += [f"{place}: {clause}" for clause in sample.anomalies]
    for part in parts:
        report.trajectories += 1
        report.turns += len(part.turns)
        report.formats[part.meta["imported_from"]] += 1
        report.tokens[part.meta["tokens"]] += 1
        overstated = part.meta.get("prompt_overstated_tokens", 0)
        report.overstated += overstated > 0
        report.overstated_tokens = max(report.overstated_tokens, overstated)
        for turn in part.turns:
            report.inference["absent" if turn.infer_s is None else part.meta["inference"]] += 1
            if turn.env is not None and (turn.env.n_calls or turn.env.duration_s is None):
                absent = turn.env.duration_s is None
                report.environment["absent" if absent else part.meta["env_duration"]] += 1


def _with_own_id(trajectory: Trajectory, seen: Counter[str]) -> Trajectory:
    """The trajectory, under another id if its own was taken; `seen` counts who asked for an id."""
    name = trajectory.id
    while name in seen:
        seen[trajectory.id] += 1
        ending = f"~{seen[trajectory.id]}"
        name = trajectory.id.encode()[: MAX_NAME_BYTES - len(ending)].decode(errors="ignore") + ending
    seen[name] = 1
    return trajectory if name == trajectory.id else msgspec.structs.replace(trajectory, id=name)


def recording(name: str) -> str:
    """What to read: of a replay's folder the file of its events."""
    events = os.path.join(name, "events.jsonl")
    return events if os.path.isfile(events) else name


def _require_file(name: str) -> None:
    if os.path.isdir(name) and not recording_files(name):
        if os.path.isfile(os.path.join(name, "comparison.json")):
            raise InputError(f"{name} has several replays; give their folders, such as {name.rstrip('/')}/*/")
        raise InputError(f"{name} is a directory; give the files in it, such as {name.rstrip('/')}/*.json")
    if not os.path.exists(name):
        raise InputError(f"{name}: no such file; check the path")
    # It is read more than once: for its format, then for what is in it.
    if not os.path.isfile(name) and not os.path.isdir(name):
        raise InputError(f"{name} is not a regular file; save what it gives to a file")
