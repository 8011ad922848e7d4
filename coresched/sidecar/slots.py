"""The environment slots of one trajectory, one at a time: when one is asked for, kept and given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from coresched.sidecar.counts import Counts
from coresched.sidecar.slot import Slot

if TYPE_CHECKING:
    from coresched.sidecar.slot import Sample


class Slots:
    """A slot is wanted while someone waits for it, a call runs in it, or it is reserved for calls to come.

    `turn_step` is the trajectory's turn in the batch, which must have ended before a slot is asked for.
    `idle_s`: how long a reserved slot may be without a call, and how long calls that were left behind may
    keep it. `changed` is called when a slot was granted or taken back.
    """

    def __init__(self, sample: Sample, idle_s: float, counts: Counts, changed: Callable[[], None]) -> None:
        self.reserved = False
        self.queue_s = 0.0
        """Sum of the waits for slots that were granted."""
        self.turn_step: asyncio.Task[None] | None = None
        self.present: Slot | None = None
        """The slot that is asked for or held."""
        self._sample = sample
        self._idle_s = idle_s
        self._counts = counts
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._step: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._left_behind: asyncio.TimerHandle | None = None

    def steps(self) -> list[asyncio.Task[None]]:
        """Steps of the sample that have not ended; another must wait for them."""
        return [step for step in (self._step, self.turn_step) if step is not None and not step.done()]

    def wanted(self) -> Slot:
        """The slot, asked for if there is none, with the caller among its waiters."""
        if self.present is None:
            slot = self.present = Slot(self._sample, self.steps())
            self._step = slot.task
            slot.granted.add_done_callback(partial(self._granted, slot))
        self.present.waiters += 1
        return self.present

    def go_on(self) -> None:
        """The trajectory goes on to its next turn: nothing is kept but for calls that still run."""
        self.reserved = False
        if self.present is not None and self.present.in_flight and self._left_behind is None:
            self._left_behind = self._loop.call_later(self._idle_s, self._take_from_calls)

    def settle(self) -> bool:
        """After any change: give back what is not wanted. Whether there is a slot, or a request for one."""
        self._cancel_idle()
        slot = self.present
        if slot is not None and slot.task.done():
            slot = self.present = None  # the batch failed it
        if slot is not None and not (self.reserved or slot.waiters or slot.in_flight):
            self.release()
            slot = None
        if self._left_behind is not None and (slot is None or not slot.in_flight):
            self._left_behind.cancel()
            self._left_behind = None
        if slot is not None and slot.held and not (slot.waiters or slot.in_flight):
            self._idle = self._loop.call_later(self._idle_s, self._take_idle)
        return slot is not None

    def release(self) -> None:
        """Give it back, whoever wants it."""
        if self.present is not None:
            self.present.give_back()
            self.present = None

    def close(self) -> None:
        """The trajectory has ended."""
        self.reserved = False
        self.release()
        self._cancel_idle()
        if self._left_behind is not None:
            self._left_behind.cancel()

    def _granted(self, slot: Slot, granted: asyncio.Future[None]) -> None:
        if granted.exception() is None:
            self.queue_s += slot.queue_s
            self._counts.queue_s.observe(slot.queue_s)
        self._changed()

    def _take_idle(self) -> None:
        self._counts.idle_stages += 1
        self.reserved = False
        self._changed()

    def _take_from_calls(self) -> None:
        self._left_behind = None
        if not self.reserved:
            self._counts.left_running += 1
            self.release()
            self._changed()

    def _cancel_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
