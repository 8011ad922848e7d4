"""The batch of a service inside an asyncio harness: the words of `coresched.Batch`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from types import TracebackType

from coresched.batch.records import BatchSummary
from coresched.client.embedded import check_loop
from coresched.client.errors import BatchClosedError, ServiceError
from coresched.client.local import BatchReport, checked_ids
from coresched.client.lookup import Lookup
from coresched.client.recorded import end_recording
from coresched.client.remote.async_link import CLEANUP_S, Link, Wait
from coresched.client.remote.async_sample import Sample
from coresched.client.remote.batching import messages
from coresched.client.remote.options import Asked, Connection, tls_of
from coresched.client.remote.records import summary
from coresched.client.remote.session import NOTE_S, Session
from coresched.recording.harness import NOT_RECORDED, BatchRecord
from coresched.v1 import batches_pb2 as pb


class RemoteBatch:
    """A batch that a service holds, for one event loop of one process. Made by `coresched.connect`.

    Leaving the batch does not wait: end your tasks first, for example with `asyncio.gather`. What this
    process has not ended is withdrawn, and whoever waits or takes a further step gets a BatchClosedError. The
    batch is closed when its last process leaves, unless that asked to `keep_open`.
    """

    _link: Link

    def __init__(
        self, service: Connection | Lookup, asked: Asked, record: BatchRecord = NOT_RECORDED
    ) -> None:
        self._service = service
        self._session = Session(str(service), asked, tls=tls_of(service), record=record)
        self._left = False
        # Waits for any admission that were cancelled: if one was granted in that moment, the same
        # request gets the same sample.
        self._again: deque[pb.AwaitAdmissionRequest] = deque()

    def sample(self, id: str) -> Sample:
        """A sample of this batch, to be entered once; its id is its trajectory label.

        Raises TypeError or ValueError for an id that is no label or was used by this process before. Entering
        it raises SampleEndedError if it ended before, SampleTakenError if another process has it.
        """
        name = self._session.claim(id)
        return Sample(self._link, name)

    async def submit(self, ids: Iterable[str]) -> None:
        """Make samples known, so that `admissions` of any process takes them up in the order of admission.

        Those known already stay as they are: each process may submit the whole list. Raises TypeError or
        ValueError for an id that is no label, before any is submitted.
        """
        names = list(dict.fromkeys(checked_ids(ids)))
        self._session.check()
        self._session.record.offered(names)
        check_loop(self._link.loop)
        for several in messages(names):
            await self._link.submit(several)

    async def admissions(self) -> AsyncIterator[Sample]:
        """Samples of the batch as they are admitted to this process, until every sample has ended.

        They hold their sample slots already: enter each one with `async with`, which ends it. Without any
        sample in the batch it waits for the first.
        """
        while True:
            self._session.check()
            link = self._link
            check_loop(link.loop)
            request = self._again.popleft() if self._again else self._session.any_admission()
            try:
                reply = await Wait(link, link.stub.AwaitAdmission, request, self._session.ending).reply()
            except asyncio.CancelledError:
                self._again.append(request)
                raise
            if not reply.sample:
                return
            yield Sample(link, reply.sample, self._session.sample(reply.sample, "admitted"))

    async def refresh(self) -> BatchReport:
        """Fetch the times of every sample so far; `report` returns the same then."""
        self._session.check()
        check_loop(self._link.loop)
        await self._link.report()
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

    async def __aenter__(self) -> RemoteBatch:
        request = self._session.begin()
        try:
            self._link = link = Link(self._service, self._session)
        except BaseException:
            self._session.closed()
            raise
        noting = link.loop.call_later(NOTE_S, self._session.note_silence)
        try:
            self._session.begun(await link.call(link.stub.OpenBatch, request))
        except BaseException:
            self._session.closed()
            await link.close()
            raise
        finally:
            noting.cancel()
        self._beats = link.loop.create_task(link.beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._left:
            return
        self._left = True
        self._beats.cancel()
        leaving = asyncio.ensure_future(self._leave())
        try:
            await asyncio.wait((leaving,), timeout=None if kind is None else CLEANUP_S)
            if not leaving.done():
                self._session.unreported(ServiceError("the service did not answer in time", "UNAVAILABLE"))
            elif kind is None:
                leaving.result()
        except BaseException as failure:
            kind = type(failure)
            raise
        finally:
            leaving.cancel()
            with suppress(asyncio.CancelledError, ServiceError, BatchClosedError):
                await leaving
            await self._link.close()
            await end_recording(self._session.record, kind)

    async def _leave(self) -> None:
        session, link = self._session, self._link
        failure = session.ending() if session.lost else None
        session.closed()  # nothing waits and nothing begins any more
        try:
            if failure is None:
                reply = await link.call(link.stub.LeaveBatch, session.leave(), last=True)
                session.progress = summary(reply.progress)
        except BatchClosedError:
            pass  # for all; that is what leaving is for
        except ServiceError as error:
            failure = error
        try:
            await link.report(last=True)
        except ServiceError as error:
            session.unreported(error)
        if failure is not None:
            raise failure
