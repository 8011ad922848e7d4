"""The batch of a service for harnesses with threads: the words of `coresched.sync.Batch`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType

from coresched.batch.records import BatchSummary
from coresched.client.errors import BatchClosedError, ServiceError
from coresched.client.local import BatchReport, checked_ids
from coresched.client.lookup import Lookup
from coresched.client.recorded import end_recording_here
from coresched.client.remote.batching import messages
from coresched.client.remote.blocking_link import CLEANUP_S, BlockingLink, BlockingWait
from coresched.client.remote.blocking_sample import Sample
from coresched.client.remote.options import Asked, Connection, tls_of
from coresched.client.remote.records import summary
from coresched.client.remote.session import NOTE_S, Session
from coresched.recording.harness import NOT_RECORDED, BatchRecord
from coresched.v1 import batches_pb2 as pb


class RemoteBatch:
    """A batch that a service holds, for any threads of one process. Made by `coresched.sync.connect`.

    Leaving the batch does not wait: join your threads first. What this process has not ended is withdrawn,
    and whoever waits or takes a further step gets a BatchClosedError. The batch is closed when its last
    process leaves, unless that asked to `keep_open`. A KeyboardInterrupt in a wait gives up the place in the
    queue. A forked child must connect anew: there every step raises RuntimeError.
    """

    _link: BlockingLink

    def __init__(
        self, service: Connection | Lookup, asked: Asked, record: BatchRecord = NOT_RECORDED
    ) -> None:
        self._service = service
        self._session = Session(str(service), asked, tls=tls_of(service), record=record)
        self._left = False
        # Waits for any admission that were interrupted: if one was granted in that moment, the same
        # request gets the same sample.
        self._again: deque[pb.AwaitAdmissionRequest] = deque()

    def sample(self, id: str) -> Sample:
        """A sample of this batch, to be entered once; its id is its trajectory label.

        Raises TypeError or ValueError for an id that is no label or was used by this process before. Entering
        it raises SampleEndedError if it ended before, SampleTakenError if another process has it.
        """
        name = self._session.claim(id)
        return Sample(self._link, name)

    def submit(self, ids: Iterable[str]) -> None:
        """Make samples known, so that `admissions` of any process takes them up in the order of admission.

        Those known already stay as they are: each process may submit the whole list. Raises TypeError or
        ValueError for an id that is no label, before any is submitted.
        """
        names = list(dict.fromkeys(checked_ids(ids)))
        self._session.check()
        self._session.record.offered(names)
        for several in messages(names):
            self._link.submit(several)

    def admissions(self) -> Iterator[Sample]:
        """Samples of the batch as they are admitted to this process, until every sample has ended.

        They hold their sample slots already: enter each one with `with`, which ends it. Without any
        sample in the batch it waits for the first. Several threads may each iterate.
        """
        while True:
            self._session.check()
            link = self._link
            try:
                request = self._again.popleft()
            except IndexError:
                request = self._session.any_admission()
            wait = BlockingWait(link, link.stub.AwaitAdmission, request, self._session.ending)
            try:
                name = wait.send().reply().sample
            except Exception:
                raise
            except BaseException:  # interrupted
                wait.give_up()
                self._again.append(request)
                raise
            if not name:
                return
            yield Sample(link, name, self._session.sample(name, "admitted"))

    def refresh(self) -> BatchReport:
        """Fetch the times of every sample so far; `report` returns the same then."""
        self._session.check()
        self._link.report()
        return self.report()

    def report(self) -> BatchReport:
        """The report fetched last: by `refresh` or, after the batch was left, the final one.

        Raises RuntimeError if none was.
        """
        return self._session.report()

    @property
    def progress(self) -> BatchSummary | None:
        """Where the whole batch stood at the latest heartbeat; None before it was entered."""
        return self._session.progress

    def __enter__(self) -> RemoteBatch:
        request = self._session.begin()
        try:
            self._link = link = BlockingLink(self._service, self._session)
        except BaseException:
            self._session.closed()
            raise
        noting = threading.Timer(NOTE_S, self._session.note_silence)
        noting.daemon = True
        noting.start()
        try:
            self._session.begun(link.call(link.stub.OpenBatch, request))
        except BaseException:
            self._session.closed()
            link.close()
            raise
        finally:
            noting.cancel()
        link.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._left:
            return
        self._left = True
        within_s = None if kind is None else CLEANUP_S
        try:
            self._leave(within_s)
        except ServiceError as failure:
            if kind is None:
                kind = type(failure)
                raise
        finally:
            self._link.close()
            end_recording_here(self._session.record, kind)

    def _leave(self, within_s: float | None) -> None:
        session, link = self._session, self._link
        failure = session.ending() if session.lost else None
        session.closed()  # nothing waits and nothing begins any more
        try:
            if failure is None:
                reply = link.call(link.stub.LeaveBatch, session.leave(), last=True, within_s=within_s)
                session.progress = summary(reply.progress)
        except BatchClosedError:
            pass  # for all; that is what leaving is for
        except ServiceError as error:
            failure = error
        try:
            link.report(last=True, within_s=within_s)
        except ServiceError as error:
            session.unreported(error)
        if failure is not None:
            raise failure
