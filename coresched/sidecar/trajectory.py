"""One life of a trajectory, as it is told from the requests of a harness that says nothing of its steps.

It begins with the label's first LLM request, which waits for admission. A reply with tool calls opens a
stage, which needs an environment slot; all calls of the message share it. The next LLM request ends the
stage. A reply without tool calls, a long silence or an order from outside ends the life.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coresched.client.errors import SampleEndedError, SampleTakenError
from coresched.logs import event
from coresched.sidecar.counts import Counts
from coresched.sidecar.messages import ToolCall
from coresched.sidecar.pending import Call, PendingCalls, Progress
from coresched.sidecar.slots import Slots
from coresched.sidecar.terms import CallGivenUpError, QueueDeadlineError, Terms, TrajectoryEndedError
from coresched.sidecar.waiting import WaitingCalls

if TYPE_CHECKING:
    from coresched.sidecar.slot import Sample

_logger = logging.getLogger(__name__)


class _WithdrawnError(Exception):
    """Ends a sample as withdrawn."""


class Trajectory:
    """Drives one sample of the batch; for one event loop. `ended` is called once, when it is over."""

    def __init__(
        self,
        label: str,
        sample: Sample,
        terms: Terms,
        pending: PendingCalls,
        counts: Counts,
        ended: Callable[[Trajectory], None],
    ) -> None:
        self.label = label
        self.sample = sample
        self.requests = 0
        """LLM requests under way, those that wait among them."""
        self.turns = 0
        self.stages = 0
        self.calls = 0
        """Requests that made one of its calls."""
        self.admission_wait_s = 0.0
        self.calls_pending: list[Call] = []
        """What the last assistant message asked for, until the next turn."""
        self._terms = terms
        self._pending = pending
        self._counts = counts
        self._on_end = ended
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._admitted: asyncio.Future[None] = self._loop.create_future()
        self._over = asyncio.Event()
        self._withdrawn = False
        self._overlapped = False
        self._finished = False  # the last reply had no tool calls
        self._refused = False  # the last LLM request, in a way that its repetition would be, too
        self._slots = Slots(sample, terms.stage_idle_s, counts, self._settle)
        self._waiting = WaitingCalls(terms.queue_deadline_s)
        self._turn_over: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._life = asyncio.create_task(self._live())

    @property
    def state(self) -> str:
        """Where it stands, in the words of the batch's own states."""
        if self._over.is_set():
            return "ended"
        if not self._admitted.done():
            return "waiting"
        if (slot := self._slots.present) is not None:
            return "environment" if slot.held else "queued"
        return "inference" if self.requests else "admitted"

    @property
    def finished(self) -> bool:
        """Whether its last reply had no tool calls, and nothing came after it."""
        return self._finished and not self.requests

    @property
    def waiting_s(self) -> float:
        """Seconds of the wait that goes on, for admission or a slot; 0 if none does."""
        if not self._admitted.done():
            return self._loop.time() - self._began
        slot = self._slots.present
        return self._loop.time() - slot.asked_at if slot is not None and not slot.granted.done() else 0.0

    @property
    def environment_queue_s(self) -> float:
        """Sum of the waits for environment slots."""
        return self._slots.queue_s

    # LLM requests.

    async def join(self) -> None:
        """An LLM request begins, and waits for admission. `leave` ends it, unless this raised.

        Raises SampleEndedError or SampleTakenError if another process has the sample, or had it.
        """
        self.requests += 1
        try:
            await asyncio.wait((self._admitted,))
            self._admitted.result()
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """An LLM request is over. Before admission, the last one that leaves takes the place with it."""
        self.requests -= 1
        if not self._admitted.done() and self.requests == 0:
            self._counts.dropped_admissions += 1
            self.end(withdrawn=True)
        self._settle()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[asyncio.Future[bool]]:
        """A turn, which ends the stage before it. Set the result once the reply is whole, or has failed."""
        self._drop_stage()
        self._finished = self._refused = False
        over: asyncio.Future[bool] = self._loop.create_future()
        overlaps = self._turn_over is not None and not self._turn_over.done()
        if overlaps:
            self._note_overlap()
        if not self._overlapped:  # else a call may be of another task with the same label
            self._waiting.give_up()
        self._settle()
        if not overlaps and not self._over.is_set():
            self._turn_over = over
            self._slots.turn_step = asyncio.create_task(self._account(over, self._slots.steps()))
        try:
            yield over
        finally:
            if not over.done():
                over.set_result(False)

    def _note_overlap(self) -> None:
        self._counts.overlapping_turns += 1
        if not self._overlapped:
            self._overlapped = True
            event(
                _logger,
                logging.WARNING,
                "turns_overlap",
                f"trajectory {self.label!r} has two LLM requests under way; if several tasks send this label "
                "or key, give each its own, or start with --label-from prompt",
                label=self.label,
            )

    async def _account(self, over: asyncio.Future[bool], before: Collection[asyncio.Task[None]]) -> None:
        """The turn in the batch. It begins once the slot of the stage before it is back.

        Where a call that the harness gave up keeps that slot, the turn may be over before; then it is none.
        """
        kept = self._slots.present.task if self._slots.present is not None else None
        for step in before:
            await asyncio.wait((step, over) if step is kept else (step,), return_when="FIRST_COMPLETED")
            if not step.done():
                return
        try:
            async with self.sample.inference():
                await asyncio.wait((over,))  # a cancelled step must not cancel the future
                if not over.result():
                    raise _WithdrawnError
                self.turns += 1
        except _WithdrawnError:
            pass
        except Exception as error:
            self._lost(error)

    def replied(self, calls: Sequence[ToolCall]) -> list[Call]:
        """The reply is whole, and these are its calls; they may be made from now on."""
        if self._over.is_set():
            return []
        self._drop_stage()
        self.calls_pending = self._pending.offer(self.label, calls)
        self._finished = not calls
        self.stages += bool(calls)
        self._settle()
        return self.calls_pending

    def refused(self) -> None:
        """The LLM takes no such request; most harnesses give their task up, and none says so."""
        self._refused = True

    async def hold(self, stage: list[Call]) -> bool:
        """Wait for the stage's slot, which is kept for its calls then; False if the deadline came first.

        The place in the queue stays. If this is cancelled, the client is gone, and so is the stage.
        """
        self._counts.held_replies += 1
        self._slots.reserved = True
        slot = self._slots.wanted()
        try:
            granted = await slot.granted_within(self._terms.queue_deadline_s)
        except asyncio.CancelledError:
            self._counts.dropped_replies += 1
            if self.calls_pending is stage:
                self._drop_stage()
            raise
        except Exception as error:  # of the batch, or the end of the trajectory; it will refuse the calls
            self._lost(error)
            return False
        finally:
            slot.waiters -= 1
            self._settle()
        self._counts.expired_replies += not granted
        return granted

    # Tool calls.

    @asynccontextmanager
    async def executing(self, call: Call | None) -> AsyncIterator[list[bool]]:
        """A request that makes the call, or is known to be the trajectory's, in the trajectory's slot.

        Append to what is yielded whether it was answered. Raises QueueDeadlineError if it got no slot in
        time, CallGivenUpError, and what the batch raises; all before anything was executed.
        """
        outcome: list[bool] = []
        executed = False
        self.calls += 1
        if call is not None:
            self._pending.begin(call)
        slot = self._slots.wanted()
        try:
            try:
                await self._waiting.wait(slot, call)
            except (asyncio.CancelledError, CallGivenUpError):
                self._counts.dropped_calls += 1
                raise
            except QueueDeadlineError:
                self._counts.expired_calls += 1
                raise
            finally:
                slot.waiters -= 1
            slot.in_flight += 1
            executed = True
            self._settle()
            try:
                yield outcome
            except asyncio.CancelledError:
                self._counts.cancelled_calls += 1
                raise
            finally:
                slot.in_flight -= 1
        finally:
            if call is not None:
                self._pending.end(call, executed=executed, answered=bool(outcome and outcome[-1]))
            if executed:
                # For calls to come, and for one that failed and may be made again.
                unanswered = any(c.progress is not Progress.ANSWERED for c in self.calls_pending)
                self._slots.reserved = unanswered
            self._settle()

    # The end.

    def end(self, *, withdrawn: bool) -> None:
        """End it now, as finished or withdrawn; what is under way goes on, but in no slot."""
        if self._over.is_set():
            return
        self._withdrawn = withdrawn
        self._over.set()
        self._drop_stage()
        self._slots.close()
        if self._timer is not None:
            self._timer.cancel()
        if not self._admitted.done():
            self._refuse(TrajectoryEndedError(self.label))
            self._life.cancel()
        if self._slots.turn_step is not None:
            self._slots.turn_step.cancel()
        self._on_end(self)

    async def closed(self) -> None:
        """The sample has ended, after `end`."""
        await asyncio.wait((self._life,))

    async def _live(self) -> None:
        try:
            async with self.sample:
                self.admission_wait_s = self._loop.time() - self._began
                self._counts.admission_s.observe(self.admission_wait_s)
                self._admitted.set_result(None)
                await self._over.wait()
                if steps := self._slots.steps():
                    await asyncio.wait(steps)
                if self._withdrawn:
                    raise _WithdrawnError
        except _WithdrawnError:
            pass
        except (SampleEndedError, SampleTakenError) as error:
            self._fail(error)
        except Exception as error:
            self._lost(error)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._admitted.done():
            self._refuse(error)
        self.end(withdrawn=True)

    def _refuse(self, error: Exception) -> None:
        self._admitted.set_exception(error)
        self._admitted.exception()  # whoever waits gets it; nobody has to

    def _lost(self, error: Exception) -> None:
        if not self._over.is_set():
            event(
                _logger,
                logging.ERROR,
                "batch_failed",
                f"trajectory {self.label!r}: {error}",
                label=self.label,
            )

    # What follows from any change.

    def _drop_stage(self) -> None:
        stage, self.calls_pending = self.calls_pending, []
        self._counts.abandoned_calls += sum(call.progress is Progress.OUTSTANDING for call in stage)
        self._pending.withdraw(stage)
        self._slots.go_on()

    def _settle(self) -> None:
        """A slot that nobody needs goes back, and the time without any request begins anew."""
        if self._over.is_set():
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._slots.settle() and not self.requests:
            over = self._finished or self._refused
            limit_s = self._terms.end_after_s if over else self._terms.idle_s
            self._timer = self._loop.call_later(limit_s, lambda: self.end(withdrawn=not self._finished))
