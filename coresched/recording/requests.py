"""What a transport or a gateway tells a recording of each HTTP request that it sends to a worker."""

from __future__ import annotations

import os
from collections.abc import Mapping

from coresched.recording.events import Attempt, SourceName
from coresched.recording.usage import AnswerReader, Usage
from coresched.recording.writer import Recorder

_ENDINGS = ("/chat/completions", "/completions", "/responses", "/generate")


def is_inference(method: str, path: str) -> bool:
    """Whether a request asks a model to generate."""
    return method == "POST" and path.endswith(_ENDINGS)


class RequestRecord:
    """The recording of one transport or gateway. Raises what `recording_folder` does."""

    def __init__(self, folder: str | os.PathLike[str], source: SourceName, *, field: str = "record") -> None:
        self.recorder = Recorder(folder, source, field=field)
        self.active = True
        """As with a batch's record, which may record nothing."""

    def attempt(self, label: str, worker: str) -> AttemptRecord:
        """A request of this label is sent to the worker now."""
        return AttemptRecord(self.recorder, label, worker)

    def close(self) -> None:
        """Raises RecordingError if events are missing. It waits for the disk."""
        self.recorder.close()


class AttemptRecord:
    """One request; what comes after its end is not heard. For one thread at a time."""

    def __init__(self, recorder: Recorder, label: str, worker: str) -> None:
        self._recorder = recorder
        self._label = label
        self._worker = worker
        self._sent_s = recorder.now()
        self._first_byte_s: float | None = None
        self._status: int | None = None
        self._answer: AnswerReader | None = None
        self._over = False

    def answered(self, status: int, headers: Mapping[str, str], worker: str | None = None) -> None:
        """The headers are there, their names in lower case; `worker` is who answered, if another."""
        self._status = status
        self._worker = worker or self._worker
        if 200 <= status < 300:
            encoding = headers.get("content-encoding", "")
            self._answer = AnswerReader(headers.get("content-type", ""), encoding)

    def piece(self, piece: bytes) -> None:
        """Of the body, as it came over the wire."""
        if self._first_byte_s is None and piece:
            self._first_byte_s = self._recorder.now() - self._sent_s
        if self._answer is not None and not self._over:
            self._answer.feed(piece)

    def ended(self, broken: str | None = None) -> None:
        """It is over: at the end of its answer or, for a reason, before.

        A stream that its client leaves after it has said that it is complete is complete.
        """
        if self._over:
            return
        self._over = True
        answer = self._answer
        usage = Usage() if answer is None else answer.usage()
        reason = None if answer is not None and answer.complete else broken
        if reason is None and answer is None:
            reason = f"status {self._status}" if self._status is not None else "no answer"
        if reason is None and answer is not None:
            reason = answer.failure
        self._recorder.write(
            Attempt(
                self._label,
                self._worker,
                sent_s=self._sent_s,
                ended_s=self._recorder.now(),
                first_byte_s=self._first_byte_s,
                streamed=answer is not None and answer.streamed,
                status=self._status,
                reason=reason,
                answer_id=usage.answer_id,
                prompt_tokens=usage.prompt_tokens,
                cached_tokens=usage.cached_tokens,
                output_tokens=usage.output_tokens,
                reasoning_tokens=usage.reasoning_tokens,
            )
        )
