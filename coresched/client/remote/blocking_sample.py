"""One sample of a service's batch, its turns and its environment stages, for threads."""

from __future__ import annotations

import time
from collections.abc import Collection
from types import TracebackType
from typing import Any

from coresched.client.errors import (
    BatchClosedError,
    LeaseExpiredError,
    SampleEndedError,
    SampleTakenError,
    ServiceError,
)
from coresched.client.remote.blocking_link import HEARD_S, BlockingLink, BlockingWait
from coresched.client.remote.blocking_resident import Resident
from coresched.client.remote.records import ENDED
from coresched.client.remote.session import Steps, new_id
from coresched.client.turn import TurnFace, checked_exclude
from coresched.core.checks import check_positive
from coresched.v1 import batches_pb2 as pb


class Sample:
    """One sample: entering waits for admission; its slot is held until the block ends, however it ends."""

    def __init__(self, link: BlockingLink, id: str, admitted: Steps | None = None) -> None:
        self.id = id
        self.link = link
        self._steps = admitted
        self._record = link.session.record.sample(id)
        if admitted is not None:
            self._record.admitted()
        self._entered = False
        self._wait: BlockingWait | None = None

    def inference(self, exclude: Collection[str] = ()) -> Turn:
        """The next model call; enter it with `with`.

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
        """A resident slot, for a sandbox that lives as long as the block; entering it (`with`) waits.

        Between stages, one at a time: TransitionError while a stage is open or such a slot is held.
        """
        return Resident(self)

    def __enter__(self) -> Sample:
        session = self.link.session
        session.check()
        if self._entered:
            raise RuntimeError(f"sample {self.id!r} can be entered once; give a retry an id of its own")
        self._entered = True
        if self._steps is None:
            steps = self._steps = session.sample(self.id, "waiting")
            self._record.submitted()
            try:
                self._admission(steps)
            except BaseException:
                steps.end(failed=True)
                session.forget(self.id)
                raise
        return self

    def _admission(self, steps: Steps) -> None:
        link = self.link
        request = pb.AwaitAdmissionRequest(**self.named())
        wait = self._wait = BlockingWait(link, link.stub.AwaitAdmission, request, steps.went)
        try:
            with link.claims:
                self._check_not_ended()
                wait.send()
            wait.reply()
        except ServiceError as error:
            if error.code != "FAILED_PRECONDITION":
                raise
            self._check_not_ended()
            raise SampleTakenError(self.id) from None
        except Exception:
            raise
        except BaseException:  # interrupted: while the wait goes on, the sample is this session's
            link.try_call(link.stub.FinishSample, self._finish(withdrawn=True))
            wait.give_up()
            raise
        if not steps.move("waiting", "admitted"):
            raise steps.went()
        self._record.admitted()

    def _check_not_ended(self) -> None:
        if (state := self.link.submit([self.id])[0]) in ENDED:
            raise SampleEndedError(self.id, ENDED[state])

    def _finish(self, withdrawn: bool) -> pb.FinishSampleRequest:
        return pb.FinishSampleRequest(withdrawn=withdrawn, **self.named())

    def __exit__(
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
            self._wait.give_up()  # a thread of the sample that outlived it must not wait for ever
        request = self._finish(withdrawn=steps.state == "withdrawn")
        self.end(kind if open_stage is None else type(open_stage), self.link.stub.FinishSample, request)
        self._record.ended(failed=steps.state == "withdrawn")
        if open_stage is not None:
            raise open_stage

    # For its stages.

    def steps(self) -> Steps:
        if self._steps is None:
            raise RuntimeError(
                f"sample {self.id!r} must be entered before its stages, with `with` or `async with`"
            )
        return self._steps

    def named(self) -> dict[str, str]:
        """What the request of every stage names."""
        return {"request_id": new_id(), "session": self.link.session.name, "sample": self.id}

    def wait(self, method: Any, request: Any) -> BlockingWait:
        self._wait = BlockingWait(self.link, method, request, self.steps().went)
        return self._wait

    def end(self, kind: type[BaseException] | None, method: Any, request: Any) -> Any | None:
        """Tell the service that a block has ended; its reply, if there is one."""
        if kind is not None:
            self.link.try_call(method, request)
            return None
        try:
            return self.link.call(method, request)
        except BatchClosedError:
            return None  # there is nothing left to end


class Turn(TurnFace):
    """One model call, timed by the service from the beginning of its `with` block to the end.

    `worker` is where to send it and `headers` what to send along. A block that raises counts as a failed
    turn; the sample may try another.
    """

    def __init__(self, sample: Sample, exclude: Collection[str]) -> None:
        super().__init__(sample.id, sample.link.session.record.turn(sample.id))
        self._sample = sample
        self._exclude = checked_exclude(exclude)

    def __enter__(self) -> Turn:
        sample, link, steps = self._sample, self._sample.link, self._sample.steps()
        steps.take("admitted", "inference", "start_inference")
        request = pb.StartTurnRequest(exclude=self._exclude, **sample.named())
        try:
            reply = link.call(link.stub.StartTurn, request)
        except Exception:
            steps.move("inference", "admitted")
            raise
        except BaseException:  # interrupted; whether it had begun or not, it has after the same call
            link.try_call(link.stub.StartTurn, request)
            link.try_call(link.stub.FinishTurn, self._finish(failed=True))
            steps.move("inference", "admitted")
            raise
        self._opened(reply.worker or None)
        return self

    def _finish(self, failed: bool) -> pb.FinishTurnRequest:
        return pb.FinishTurnRequest(failed=failed, **self._sample.named())

    def __exit__(
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
            sample.end(kind, sample.link.stub.FinishTurn, self._finish(failed=kind is not None))
        finally:
            steps.move("inference", "admitted")


class Environment:
    """One environment stage: entering waits for a slot, the block is the job. `queue_s` is the wait.

    A stage is all tool calls between two turns: run parallel calls inside one block.
    """

    def __init__(self, sample: Sample, max_s: float | None) -> None:
        self._sample = sample
        self._record = sample.link.session.record.stage(sample.id)
        self._max_s = max_s
        self._open = False
        self.queue_s = 0.0
        """Seconds this stage waited for its slot; extend your own timeouts by it."""

    def __enter__(self) -> Environment:
        sample, link, steps = self._sample, self._sample.link, self._sample.steps()
        self._record.requested()
        steps.take("admitted", "queued", "request_environment")
        request = pb.AcquireEnvironmentRequest(max_s=self._max_s, **sample.named())
        wait = sample.wait(link.stub.AcquireEnvironment, request)
        try:
            reply = wait.send().reply()
        except Exception:
            steps.move("queued", "admitted")
            raise
        except BaseException:
            self._give_back(wait)
            steps.move("queued", "admitted")
            raise
        if not steps.move("queued", "environment"):
            raise steps.went()
        self._open = True
        self.queue_s = reply.queue_s
        self._record.started()
        return self

    def _give_back(self, wait: BlockingWait) -> None:
        """The place in the queue, or the slot if the grant came first."""
        link = self._sample.link
        wait.give_up()
        try:
            while True:
                try:
                    link.call(link.stub.ReleaseEnvironment, self._release(failed=True))
                    return
                except ServiceError as error:
                    if error.code != "FAILED_PRECONDITION":
                        raise
                # It had no slot. Until the service has heard that the wait ended, it may still get one.
                state = link.submit([self._sample.id])[0]
                if state not in (pb.SAMPLE_STATE_QUEUED, pb.SAMPLE_STATE_ENVIRONMENT):
                    return
                time.sleep(HEARD_S)
        except (ServiceError, BatchClosedError):
            pass

    def _release(self, failed: bool) -> pb.ReleaseEnvironmentRequest:
        return pb.ReleaseEnvironmentRequest(failed=failed, **self._sample.named())

    def __exit__(
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
            reply = sample.end(kind, sample.link.stub.ReleaseEnvironment, request)
        finally:
            steps.move("environment", "admitted")
        if reply is not None and reply.expired and self._max_s is not None:
            raise LeaseExpiredError(sample.id, self._max_s)
