"""One account of a run out of what several recorded of it: each turn once, and each wait apart from the work.

A sample's life begins with its admission in a harness's file and ends with its completion or withdrawal. A
label that no harness recorded is one life, whose turns are the requests that were answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from coresched.recording.events import (
    Admission,
    AnyEvent,
    Attempt,
    BatchOptions,
    Completion,
    Withdrawal,
)
from coresched.recording.lives import Life, Turns, distribute, lives_of, turns_of
from coresched.recording.matching import requests_of
from coresched.recording.reader import Sources, read_sources

State = Literal["completed", "withdrawn", "unfinished"]


@dataclass
class RecordedSample:
    """One life of a sample."""

    sample: str
    """Its id; of a later life with the same id `id~2` and on."""
    state: State
    by_harness: bool
    """A harness recorded it; otherwise it begins with its first request and ends with its last answer."""
    admitted_s: float
    events: list[AnyEvent]
    """In order of their end. Turns are numbered, and stages have theirs and when the harness resumed."""
    by_block: int
    """Turns whose request nobody recorded: their time is that of the turn's block, retries included."""


@dataclass
class Recording:
    """A recording as one account. Times are seconds since `began_at`."""

    began_at: float
    """Unix seconds of the first event."""
    samples: list[RecordedSample]
    """In order of their admission."""
    batch: BatchOptions | None
    """The options of the batch, if a harness recorded."""
    faults: list[str]
    """One line for each thing that could not be read or used."""

    @property
    def events(self) -> list[AnyEvent]:
        """Those of all samples, in order of their end."""
        return sorted((event for sample in self.samples for event in sample.events), key=end_of)


def end_of(event: AnyEvent) -> float:
    """When it was over."""
    return event.at_s if isinstance(event, Admission | Completion | Withdrawal) else event.ended_s


def read_recording(paths: Sequence[Path]) -> Recording:
    """The account in these files. Raises InputError as `read_sources` does."""
    return merge(read_sources(paths))


def merge(sources: Sources) -> Recording:
    """The account of these sources; their order, and that of the events in them, is of no matter."""
    faults = list(sources.faults)
    lives: dict[str, list[Life]] = {}
    attempts: dict[str, dict[str, list[Attempt]]] = {"transport": {}, "gateway": {}}
    for source in sources.each:
        if source.header.source == "harness":
            for life in lives_of(source.events):
                lives.setdefault(life.sample, []).append(life)
            continue
        for event in source.events:
            if isinstance(event, Attempt):
                attempts[source.header.source].setdefault(event.sample, []).append(event)
    labels = sorted({*lives, *attempts["transport"], *attempts["gateway"]})
    samples: list[RecordedSample] = []
    for label in labels:
        own = sorted(lives.get(label, ()), key=lambda life: (life.began_s, life.ended_s))
        requests = requests_of(attempts["transport"].get(label, ()), attempts["gateway"].get(label, ()))
        if not own:
            life = Life(label, requests[0].sent_s)
            samples += _named([_recorded(life, turns_of(life, requests))])
            continue
        each, astray = distribute(requests, own)
        made = [turns_of(life, some) for life, some in zip(own, each, strict=True)]
        samples += _named(_lasting(own, made, astray, faults))
    samples.sort(key=lambda sample: (sample.admitted_s, sample.sample))
    batch = next((one.header.batch for one in sources.each if one.header.batch is not None), None)
    return Recording(sources.began_at, samples, batch, faults)


def _lasting(
    lives: Sequence[Life], made: Sequence[Turns], astray: int, faults: list[str]
) -> list[RecordedSample]:
    """All lives but those that never ended and were begun again, by who took over from a dead process."""
    lasting: list[RecordedSample] = []
    for place, (life, turns) in enumerate(zip(lives, made, strict=True)):
        if life.end is None and place < len(lives) - 1:
            faults.append(f"sample {life.sample!r}: it did not end and was begun again; only that is counted")
        else:
            lasting.append(_recorded(life, turns))
            astray += turns.astray
    if astray:
        what = "1 request is" if astray == 1 else f"{astray:,} requests are"
        faults.append(f"sample {lives[0].sample!r}: {what} outside of its turns and not counted")
    return lasting


def _recorded(life: Life, turns: Turns) -> RecordedSample:
    by_harness = bool(life.admission or life.end or life.starts or life.ends or life.stages)
    events: list[AnyEvent] = sorted(turns.events, key=end_of)
    end: AnyEvent | None = life.end
    if not by_harness:
        end = Completion(life.sample, end_of(events[-1]))
    if end is not None:
        events.append(end)
    state: State = "unfinished"
    if end is not None:
        state = "withdrawn" if isinstance(end, Withdrawal) else "completed"
    admission = life.admission or Admission(life.sample, life.began_s)
    return RecordedSample(life.sample, state, by_harness, life.began_s, [admission, *events], turns.by_block)


def _named(samples: list[RecordedSample]) -> list[RecordedSample]:
    """Lives of one sample, each under a name of its own."""
    for number, sample in enumerate(samples[1:], start=2):
        sample.sample = f"{sample.sample}~{number}"
        sample.events = [msgspec.structs.replace(event, sample=sample.sample) for event in sample.events]
    return samples
