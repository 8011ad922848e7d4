"""One sample of a service's batch, its turns and its environment stages, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Any

from coresched.client.embedded import check_loop
from coresched.client.errors import (
    BatchClosedError,
    LeaseExpiredError,
    SampleEndedError,
    SampleTakenError,
    ServiceError,
)
from coresched.client.remote.async_link import CLEANUP_S, HEARD_S, Link, Wait, Work
from coresched.client.remote.async_resident import Resident
from coresched.client.remote.records import ENDED
from coresched.client.remote.session import Steps, new_id
from coresched.client.turn import TurnFace, checked_exclude
from coresched.core.checks import check_positive
from coresched.v1 import batches_pb2 as pb


class Sample:
    """One sample: entering waits for admission; its slot is held until the block ends, however it ends."""

    def __init__(self, link: Link, id: str, admitted: Steps | None = None) -> None:
        self.id = id
        self.link = link
        self._steps = admitted
        self._record = link.session.record.sample(id)
        if admitted is not None:
            self._record.admitted()
        self._entered = False
        self._wait: Wait | None = None
        self._unsettled: asyncio.Task[None] | None = None

    def inference(self, exclude: Collection[str] = ()) -> Turn:
        """The next model call; enter it with `async with`.

        `exclude` names workers not to use for it, such as the one that failed it before. Entering raises
        TransitionError while a stage is open, LookupError if `exclude` names an unknown worker or all.
        """
        return Turn(self, exclude)

    def environment(self, max_s: float | None = None) -> Environment:
        """The next environment stage; entering it waits. Raises TransitionError while a stage is open.

        `max_s` is the longest that the stage may hold its slot, in seconds: then the slot goes to the next,
        and leaving the block raises LeaseExpiredError unless the block raised.
        """
        return Environment(self, None if max_s is None else check_positive(max_s, "max_s"))

    def resident(self) -> Resident:
        """A resident slot, for a sandbox that lives as long as the block; entering it (`async with`) waits.

        Between stages, one at a time: TransitionError while a stage is open or such a slot is held.
        """
        return Resident(self)

    async def __aenter__(self) -> Sample:
        check_loop(self.link.loop)
        session = self.link.session
        session.check()
        if self._entered:
            raise RuntimeError(f"sample {self.id!r} can be entered once; give a retry an id of its own")
        self._entered = True
        if self._steps is None:
            steps = self._steps = session.sample(self.id, "waiting")
            self._record.submitted()
            try:
                await self._admission(steps)
            except BaseException:
                steps.end(failed=True)
                session.forget(self.id)
                raise
        return self

    async def _admission(self, steps: Steps) -> None:
        link = self.link
        try:
            state = await link.state_of(self.id)
        except asyncio.CancelledError:
            await self.settle(self._claim_and_withdraw)
            raise
        if state in ENDED:
            raise SampleEndedError(self.id, ENDED[state])
        wait = self._claim(steps)
        try:
            await wait.reply()
        except asyncio.CancelledError:
            await self.settle(lambda: self._withdraw(wait))
            raise
        except ServiceError as error:
            if error.code != "FAILED_PRECONDITION":
                raise
            if (state := await link.state_of(self.id)) in ENDED:
                raise SampleEndedError(self.id, ENDED[state]) from None
            raise SampleTakenError(self.id) from None
        if not steps.move("waiting", "admitted"):
            raise steps.went()
        self._record.admitted()

    def _claim(self, steps: Steps) -> Wait:
        stub, request = self.link.stub, pb.AwaitAdmissionRequest(**self.named())
        self._wait = Wait(self.link, stub.AwaitAdmission, request, steps.went, keep=True)
        return self._wait

    async def _claim_and_withdraw(self) -> None:
        """What was submitted would else be open to all."""
        if await self.link.state_of(self.id) not in ENDED:
            await self._withdraw(self._claim(self.steps()))

    async def _withdraw(self, wait: Wait) -> None:
        """While the wait goes on, so that the sample is this session's, admitted meanwhile or not."""
        try:
            while not await self._withdrawn(wait):
                await asyncio.sleep(HEARD_S)
        finally:
            wait.give_up()

    async def _withdrawn(self, wait: Wait) -> bool:
        """Whether there is nothing left to withdraw. The service may hear of the claim only after this."""
        try:
            await self.link.call(self.link.stub.FinishSample, self._finish(withdrawn=True))
        except ServiceError as error:
            if error.code != "FAILED_PRECONDITION":
                raise
            return wait.refused or await self.link.state_of(self.id) in ENDED
        return True

    def _finish(self, withdrawn: bool) -> pb.FinishSampleRequest:
        return pb.FinishSampleRequest(withdrawn=withdrawn, **self.named())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        steps = self.steps()
        if steps.ended:
            if kind is None:
                self.link.session.check_not_lost()
            return
        open_stage = steps.end(failed=kind is not None)
        self.link.session.forget(self.id)
        if self._wait is not None:
            self._wait.give_up()  # a task of the sample that outlived it must not wait for ever
        request = self._finish(withdrawn=steps.state == "withdrawn")
        await self.end(kind if open_stage is None else type(open_stage), self.link.stub.FinishSample, request)
        self._record.ended(failed=steps.state == "withdrawn")
        if open_stage is not None:
            raise open_stage

    def steps(self) -> Steps:
        if self._steps is None:
            raise RuntimeError(
                f"sample {self.id!r} must be entered before its stages, with `with` or `async with`"
            )
        return self._steps

    # For its stages.

    def named(self) -> dict[str, str]:
        """What the request of every stage names."""
        return {"request_id": new_id(), "session": self.link.session.name, "sample": self.id}

    def wait(self, method: Any, request: Any, *, keep: bool = False) -> Wait:
        self._wait = Wait(self.link, method, request, self.steps().went, keep=keep)
        return self._wait

    async def settled(self) -> None:
        """What a cancelled block left to do is done."""
        if self._unsettled is not None:
            await asyncio.wait((self._unsettled,))
            self._unsettled = None

    async def settle(self, work: Work) -> None:
        """See `work` through after what is unsettled yet, and wait for it a while."""
        self._unsettled = self.link.see_through(work, self._unsettled)
        await asyncio.wait((self._unsettled,), timeout=CLEANUP_S)

    async def end(self, kind: type[BaseException] | None, method: Any, request: Any) -> Any | None:
        """Tell the service that a block has ended; its reply, if there is one.

        The error of a block that raised goes on, whatever becomes of the call.
        """
        if kind is not None:
            if not issubclass(kind, GeneratorExit):  # in which nothing can be awaited
                await self.settle(lambda: self.link.call(method, request))
            return None
        try:
            return await self.link.call(method, request)
        except asyncio.CancelledError:
            await self.settle(lambda: self.link.call(method, request))
            raise
        except BatchClosedError:
            return None  # there is nothing left to end


class Turn(TurnFace):
    """One model call, timed by the service from the beginning of its `async with` block to the end.

    `worker` is where to send it and `headers` what to send along. A block that raises or is cancelled
    counts as a failed turn; the sample may try another.
    """

    def __init__(self, sample: Sample, exclude: Collection[str]) -> None:
        super().__init__(sample.id, sample.link.session.record.turn(sample.id))
        self._sample = sample
        self._exclude = checked_exclude(exclude)

    async def __aenter__(self) -> Turn:
        sample, link, steps = self._sample, self._sample.link, self._sample.steps()
        check_loop(link.loop)
        await sample.settled()
        steps.take("admitted", "inference", "start_inference")
        request = pb.StartTurnRequest(exclude=self._exclude, **sample.named())
        try:
            reply = await link.call(link.stub.StartTurn, request)
        except asyncio.CancelledError:
            await sample.settle(lambda: self._undo(request))
            raise
        except Exception:
            steps.move("inference", "admitted")
            raise
        self._opened(reply.worker or None)
        return self

    async def _undo(self, request: pb.StartTurnRequest) -> None:
        """Whether it had begun or not, it has after the same call."""
        link = self._sample.link
        try:
            await link.call(link.stub.StartTurn, request)
            await link.call(link.stub.FinishTurn, self._finish(failed=True))
        finally:
            self._sample.steps().move("inference", "admitted")

    def _finish(self, failed: bool) -> pb.FinishTurnRequest:
        return pb.FinishTurnRequest(failed=failed, **self._sample.named())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._closed():
            return
        self._record.ended(failed=kind is not None)
        sample, steps = self._sample, self._sample.steps()
        if steps.ended:
            if kind is None:
                sample.link.session.check_not_lost()
            return
        try:
            await sample.end(kind, sample.link.stub.FinishTurn, self._finish(failed=kind is not None))
        finally:
            steps.move("inference", "admitted")


class Environment:
    """One environment stage: entering waits for a slot, the block is the job. `queue_s` is the wait.

    A stage is all tool calls between two turns: gather parallel calls inside one block.
    """

    def __init__(self, sample: Sample, max_s: float | None) -> None:
        self._sample = sample
        self._record = sample.link.session.record.stage(sample.id)
        self._max_s = max_s
        self._open = False
        self.queue_s = 0.0
        """Seconds this stage waited for its slot; extend your own timeouts by it."""

    async def __aenter__(self) -> Environment:
        sample, link, steps = self._sample, self._sample.link, self._sample.steps()
        check_loop(link.loop)
        await sample.settled()
        self._record.requested()
        steps.take("admitted", "queued", "request_environment")
        request = pb.AcquireEnvironmentRequest(max_s=self._max_s, **sample.named())
        wait = sample.wait(link.stub.AcquireEnvironment, request)
        try:
            reply = await wait.reply()
        except asyncio.CancelledError:
            await sample.settle(lambda: self._give_back(wait))
            raise
        except Exception:
            steps.move("queued", "admitted")
            raise
        if not steps.move("queued", "environment"):
            raise steps.went()
        self._open = True
        self.queue_s = reply.queue_s
        self._record.started()
        return self

    async def _give_back(self, wait: Wait) -> None:
        """The place in the queue, or the slot if the grant came first."""
        link = self._sample.link
        try:
            wait.give_up()
            while True:
                try:
                    await link.call(link.stub.ReleaseEnvironment, self._release(failed=True))
                    return
                except ServiceError as error:
                    if error.code != "FAILED_PRECONDITION":
                        raise
                # It had no slot. Until the service has heard that the wait ended, it may still get one.
                state = (await link.submit([self._sample.id]))[0]
                if state not in (pb.SAMPLE_STATE_QUEUED, pb.SAMPLE_STATE_ENVIRONMENT):
                    return
                await asyncio.sleep(HEARD_S)
        finally:
            self._sample.steps().move("queued", "admitted")

    def _release(self, failed: bool) -> pb.ReleaseEnvironmentRequest:
        return pb.ReleaseEnvironmentRequest(failed=failed, **self._sample.named())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._open:
            return
        self._open = False
        self._record.ended(failed=kind is not None)
        sample, steps = self._sample, self._sample.steps()
        if steps.ended:
            if kind is None:
                sample.link.session.check_not_lost()
            return
        try:
            request = self._release(failed=kind is not None)
            reply = await sample.end(kind, sample.link.stub.ReleaseEnvironment, request)
        finally:
            steps.move("environment", "admitted")
        if reply is not None and reply.expired and self._max_s is not None:
            raise LeaseExpiredError(sample.id, self._max_s)
