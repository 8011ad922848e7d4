"""What the blocks of a batch tell a recording, each by a hook of its own; without one they tell nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable

from coresched.core.checks import check_count
from coresched.recording.events import (
    Admission,
    BatchOptions,
    Completion,
    EnvironmentStage,
    RecordedEvent,
    TurnEnd,
    TurnStart,
    Withdrawal,
)
from coresched.recording.writer import Recorder


class BatchRecord:
    """The recording of one batch in this process; with None as its folder there is none."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, batch: BatchOptions | None = None):
        """Raises what `recording_folder` does."""
        self._recorder = None if folder is None else Recorder(folder, "harness", batch)
        self._submitted: dict[str, float] = {}  # of samples that this process offered to all

    def now(self) -> float:
        return 0.0 if self._recorder is None else self._recorder.now()

    def write(self, event: RecordedEvent) -> None:
        if self._recorder is not None:
            self._recorder.write(event)

    def offered(self, ids: Iterable[str]) -> None:
        """Samples were submitted, for any process to take up."""
        if self._recorder is not None:
            at_s = self.now()
            for id in ids:
                self._submitted.setdefault(id, at_s)

    def offered_at(self, id: str) -> float | None:
        return self._submitted.pop(id, None)

    def sample(self, id: str) -> SampleRecord:
        return SampleRecord(self, id)

    def turn(self, sample: str) -> TurnRecord:
        return TurnRecord(self, sample)

    def stage(self, sample: str) -> StageRecord:
        return StageRecord(self, sample)

    @property
    def active(self) -> bool:
        return self._recorder is not None

    def close(self) -> None:
        """Raises RecordingError if events are missing. It waits for the disk."""
        if self._recorder is not None:
            self._recorder.close()


NOT_RECORDED = BatchRecord()


class SampleRecord:
    """The hook of a sample's block."""

    def __init__(self, record: BatchRecord, sample: str) -> None:
        self._record = record
        self._sample = sample
        self._submitted_s: float | None = None

    def submitted(self) -> None:
        self._submitted_s = self._record.now()

    def admitted(self) -> None:
        offered_s = self._record.offered_at(self._sample)
        submitted_s = offered_s if self._submitted_s is None else self._submitted_s
        self._record.write(Admission(self._sample, self._record.now(), submitted_s))

    def ended(self, failed: bool) -> None:
        kind = Withdrawal if failed else Completion
        self._record.write(kind(self._sample, self._record.now()))


class TurnRecord:
    """The hook of a turn's block."""

    def __init__(self, record: BatchRecord, sample: str) -> None:
        self._record = record
        self._sample = sample
        self._began_s = 0.0
        self._worker: str | None = None
        self._usage: tuple[int | None, int | None, int | None] = (None, None, None)

    def began(self, worker: str | None) -> None:
        self._began_s = self._record.now()
        self._worker = worker
        self._record.write(TurnStart(self._sample, self._began_s, worker))

    def usage(self, prompt_tokens: int, cached_tokens: int | None, output_tokens: int) -> None:
        """Raises TypeError or ValueError for counts that cannot be."""
        check_count(prompt_tokens, "prompt_tokens", 1)
        check_count(output_tokens, "output_tokens", 0)
        if cached_tokens is not None:
            check_count(cached_tokens, "cached_tokens", 0)
            if cached_tokens > prompt_tokens:
                raise ValueError(
                    f"cached_tokens must be at most prompt_tokens, which is {prompt_tokens}, "
                    f"got {cached_tokens}; prompt_tokens is the whole prompt, what was cached included"
                )
        self._usage = (prompt_tokens, cached_tokens, output_tokens)

    def ended(self, failed: bool) -> None:
        now = self._record.now()
        self._record.write(TurnEnd(self._sample, self._began_s, now, self._worker, failed, *self._usage))


class StageRecord:
    """The hook of an environment stage's block."""

    def __init__(self, record: BatchRecord, sample: str) -> None:
        self._record = record
        self._sample = sample
        self._requested_s = 0.0
        self._started_s = 0.0

    def requested(self) -> None:
        self._requested_s = self._record.now()

    def started(self) -> None:
        """It has its slot, and the job begins."""
        self._started_s = self._record.now()

    def ended(self, failed: bool) -> None:
        self._record.write(
            EnvironmentStage(
                self._sample,
                turn=None,
                requested_s=self._requested_s,
                started_s=self._started_s,
                ended_s=self._record.now(),
                duration_s=None,
                failed=failed,
            )
        )
