"""One client process in one batch: what it holds, whether it lives, and what no step may do any more.

No I/O here: the asynchronous and the blocking client do that, and tell the session how it went.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Final

import grpc

from coresched.batch.records import BatchSummary, State, TransitionError
from coresched.client.errors import BatchClosedError, SessionLostError
from coresched.client.local import BatchReport
from coresched.client.remote.attempts import passing, refusal
from coresched.client.remote.options import Asked
from coresched.client.remote.records import summary
from coresched.client.unanswered import hint
from coresched.core.checks import check_label
from coresched.recording.harness import NOT_RECORDED, BatchRecord
from coresched.v1 import batches_pb2 as pb

_LONGEST_BEAT_S = 15.0  # so that the connection is never silent for as long as its keepalive asks

NOTE_S = 2.5
"""Seconds without an answer after which that is noted."""

_logger = logging.getLogger("coresched.client")

NOT_EXPECTED: Final = -1.0
"""In SubmitSamplesRequest.expected."""

_ENDED: Final = ("finished", "withdrawn")


def new_id() -> str:
    return str(uuid.uuid4())


class Steps:
    """Where one sample of this process stands. A step out of order is refused before anything is sent."""

    __slots__ = ("_resident", "_session", "name", "state")

    def __init__(self, session: Session, name: str, state: State) -> None:
        self._session = session
        self.name = name
        self.state: State = state
        self._resident = False

    @property
    def ended(self) -> bool:
        return self.state in _ENDED

    def take(self, needed: State, to: State, asked: str) -> None:
        """Raises what ended the session, or TransitionError in any other state than `needed`."""
        with self._session.lock:
            self._session.check()
            if self.state != needed:
                raise TransitionError(self.name, self.state, asked)
            self.state = to

    def move(self, since: State, to: State) -> bool:
        """Go on from `since`, or stay in another state that was reached meanwhile."""
        with self._session.lock:
            if self.state != since:
                return False
            self.state = to
            return True

    def ask_resident(self) -> None:
        """The wait for a resident slot begins. Raises as `take`, and TransitionError if it holds one."""
        with self._session.lock:
            if self._resident:
                self._session.check()
                raise TransitionError(self.name, self.state, "request_resident")
            self.take("admitted", "resident_queued", "request_resident")

    def housed(self) -> bool:
        """The wait ended with the slot; False if another state was reached meanwhile."""
        with self._session.lock:
            self._resident = self.move("resident_queued", "admitted")
            return self._resident

    def unhoused(self, failed: bool) -> TransitionError | None:
        """The resident slot is given back; the error if that did not fail and a stage is still open."""
        with self._session.lock:
            self._resident = False
            if failed or self.state == "admitted":
                return None
            return TransitionError(self.name, self.state, "finish_resident")

    def end(self, failed: bool) -> TransitionError | None:
        """The sample ends; the error if it should have finished and a stage is still open."""
        with self._session.lock:
            open_stage = None
            if not failed and self.state != "admitted":
                open_stage = TransitionError(self.name, self.state, "finish")
            self.state = "withdrawn" if failed or open_stage is not None else "finished"
            return open_stage

    def went(self) -> Exception:
        """Why a wait for a slot was ended from here."""
        if self._session.is_over:
            return self._session.ending()
        return TransitionError(self.name, self.state, "a wait for a slot")


class Session:
    """Safe for several threads. `check` raises once the session is over, whatever ended it."""

    def __init__(
        self,
        target: str,
        asked: Asked,
        *,
        tls: bool | None = False,
        record: BatchRecord = NOT_RECORDED,
    ) -> None:
        """`tls`: whether the client was told to use it; None where it was not told how to connect at all."""
        self.record = record
        self.lock = threading.RLock()
        self.asked = asked
        self.name = ""
        self.grace_s = asked.grace_s
        self.beat_s = _LONGEST_BEAT_S
        self.progress: BatchSummary | None = None
        self._target = target
        self._tls = tls
        self._process = 0
        self._over: Callable[[], Exception] | None = None
        self._wakers: dict[object, Callable[[], None]] = {}
        self._steps: dict[str, Steps] = {}
        self._used: set[str] = set()
        self._silent_since: float | None = None
        self._noted = False
        self._why = ""
        self._report: BatchReport | None = None
        self._no_report = "no report was fetched yet; call refresh(), or leave the batch first"

    # Its beginning and its end.

    def begin(self) -> pb.OpenBatchRequest:
        with self.lock:
            if self._process:
                raise RuntimeError("a batch can be entered once; connect anew for the next one")
            self._process = os.getpid()
        asked = self.asked
        return pb.OpenBatchRequest(
            request_id=new_id(), batch=asked.batch, options=asked.options, grace_s=asked.grace_s
        )

    def begun(self, reply: pb.OpenBatchResponse) -> None:
        self.name = reply.session
        self.grace_s = reply.grace_s
        self.beat_s = min(reply.heartbeat_s, _LONGEST_BEAT_S)
        self.progress = summary(reply.progress)

    def leave(self) -> pb.LeaveBatchRequest:
        return pb.LeaveBatchRequest(request_id=new_id(), session=self.name, keep_open=self.asked.keep_open)

    def check(self) -> None:
        """Raises what ended the session; RuntimeError before it has begun and in a forked child."""
        if self._process != os.getpid():
            if not self._process:
                raise RuntimeError("the batch is not open; enter it first, with `with` or `async with`")
            raise RuntimeError(
                "this batch was connected by another process and is of no use in its fork; connect anew here"
            )
        if self._over is not None:
            raise self._over()

    def over(self, why: Callable[[], Exception]) -> None:
        """End the session here: no step goes on, and all waits are woken. The first reason stays."""
        with self.lock:
            if self._over is not None:
                return
            self._over = why
            for steps in self._steps.values():
                if not steps.ended:
                    steps.state = "withdrawn"
            self._steps.clear()
            wakers = list(self._wakers.values())
        for wake in wakers:
            wake()

    def closed(self) -> None:
        """The batch has ended, here or for all."""
        self.over(lambda: BatchClosedError("the batch has ended; samples that had not were withdrawn"))

    @property
    def is_over(self) -> bool:
        return self._over is not None

    def ending(self) -> Exception:
        """What ended the session."""
        return RuntimeError("the session goes on") if self._over is None else self._over()

    @property
    def lost(self) -> bool:
        return isinstance(self.ending(), SessionLostError)

    def check_not_lost(self) -> None:
        """At the end of a block: a batch that has ended left nothing to do, a lost session lost the work."""
        if self.lost:
            raise self.ending()

    def on_over(self, key: object, wake: Callable[[], None]) -> None:
        """`wake` is called once the session is over, now if it is; from any thread."""
        with self.lock:
            self._wakers[key] = wake
            late = self._over is not None
        if late:
            wake()

    def off(self, key: object) -> None:
        with self.lock:
            self._wakers.pop(key, None)

    # Whether the service answers.

    def answered(self) -> None:
        self._silent_since = None
        if self._noted:
            self._noted = False
            _logger.info("%s answers again", self._target)

    def failed(self, code: grpc.StatusCode, message: str) -> None:
        """Raises unless the call should be sent again.

        The grace period runs from the first attempt that failed, not from the last answer: a process that was
        itself held up has not been without an answer.
        """
        if not passing(code):
            self.answered()
            error = refusal(code, message)
            if isinstance(error, SessionLostError):
                self.over(lambda: SessionLostError(f"the session is lost: {message}", code.name))
            elif isinstance(error, BatchClosedError):
                self.closed()
            raise error
        now = time.monotonic()
        with self.lock:
            if self._silent_since is None:
                self._silent_since = now
            silent_s = now - self._silent_since
            self._why = f"{code.name}: {' '.join(message.split())}"
            if (
                self._tls is not None and not self.name
            ):  # later the reason is hardly the way in which it connects
                self._why += hint(message, tls=self._tls)
        if silent_s >= self.grace_s:
            text = f"{self._target} has not answered for {self.grace_s:g} s ({self._why})"
            self.over(lambda: SessionLostError(text, code.name))
            raise SessionLostError(text, code.name)
        if silent_s >= NOTE_S:
            self.note_silence()

    def note_silence(self) -> None:
        """Tell whoever watches that the service has not answered yet, once until it does; from any thread."""
        with self.lock:
            if self._noted or self._over is not None:
                return
            self._noted = True
            why = f" ({self._why})" if self._why else ""
        _logger.warning(
            "no answer from %s yet%s; trying until %g s have passed", self._target, why, self.grace_s
        )

    def left_s(self) -> float:
        """Seconds until the grace period of a service that does not answer is over."""
        since = self._silent_since
        return self.grace_s if since is None else max(0.0, self.grace_s - (time.monotonic() - since))

    # Its samples.

    def claim(self, name: str) -> str:
        """Reserve the id for one Sample object; the id."""
        name = check_label(name, "sample id")
        with self.lock:
            self.check()
            if name in self._used:
                raise ValueError(
                    f"a sample id must be new to the batch, got {name!r} again; give a retry an id of its own"
                )
            self._used.add(name)
        return name

    def sample(self, name: str, state: State) -> Steps:
        """The steps of a sample that this process waits for or holds."""
        with self.lock:
            self.check()
            self._used.add(name)
            steps = self._steps[name] = Steps(self, name, state)
        return steps

    def forget(self, name: str) -> None:
        with self.lock:
            self._steps.pop(name, None)

    def submission(self, names: list[str]) -> pb.SubmitSamplesRequest:
        """Makes the samples known, with what is expected of them."""
        history = self.asked.history
        expected = None if history is None else [history.expected(name) for name in names]
        return pb.SubmitSamplesRequest(
            request_id=new_id(),
            session=self.name,
            samples=names,
            expected=None
            if expected is None
            else [NOT_EXPECTED if length is None else length for length in expected],
        )

    def any_admission(self) -> pb.AwaitAdmissionRequest:
        return pb.AwaitAdmissionRequest(request_id=new_id(), session=self.name)

    # Its report.

    def report(self) -> BatchReport:
        if not self._process:
            self.check()
        if self._report is None:
            raise RuntimeError(self._no_report)
        return self._report

    def reported(self, report: BatchReport) -> None:
        self._report = report
        self.progress = report.totals

    def unreported(self, error: Exception) -> None:
        """The final report could not be fetched."""
        self._report = None
        self._no_report = f"the final report could not be fetched: {error}"
