"""Trajectories are paused between turns while the contexts of the others fill the workers' KV pools."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from coresched.lab.simulator.admissions.gate import TurnGate, Workers

BUFFER_TOKENS: Final = 100
"""Room kept for each trajectory that is not paused."""
LONGEST_HELD_S: Final = 1800.0


@dataclass(slots=True)
class _Program:
    """One trajectory; ``worker`` is where its context counts, None while it is paused."""

    tokens: int
    worker: int | None = None
    turns: int = 0
    reasoning: bool = False
    """Whether it has a turn, sent or held; else it acts."""
    marked: bool = False
    """Whether it is paused when its turn ends."""
    held_s: float | None = None
    """Since when a turn of it is held."""


class PauseResume(TurnGate):
    """ThunderAgent, arXiv:2602.13692, as in scheduler/router.py and wiki/Scheduler.md of its repository.

    A new trajectory is sent at once if none is paused and its prompt fits on a worker, else it waits paused.
    Every 5 s those paused are resumed as far as they fit: first who has a turn to send, then new ones, then
    who acts, each by context, smallest first; the largest of those chosen is placed first, always where most
    room is. Then, on a worker whose trajectories exceed its KV pool, those that act are paused, smallest
    context first, and if that is not enough those in a turn are marked, to be paused when it ends. A turn
    held for 30 minutes is sent whatever the room. A context counts while its trajectory is not paused, and a
    prefix shared in a group once.

    Simplified: contexts are known exactly, and grow when a turn ends, not while it decodes; a turn held too
    long is sent at the next check; the router of the run has the last word on where a turn goes, and the
    context counts there then. State slots are not looked at, as there: only KV tokens are.
    """

    interval_s: ClassVar[float] = 5.0

    def __init__(self, workers: Workers) -> None:
        self._workload = workers.workload
        self._capacity = workers.kv_tokens
        self._programs: dict[int, _Program] = {}
        self._paused: dict[int, None] = {}  # as they were paused
        self._used = [0] * workers.workers
        self._leaving = [0] * workers.workers  # tokens of the marked
        self._sharing: Counter[tuple[int, int]] = Counter()  # (worker, group): trajectories

    def ask(self, sample: int, prompt_tokens: int, now_s: float) -> bool:
        program = self._programs.setdefault(sample, _Program(prompt_tokens))
        program.turns += 1
        program.reasoning = True
        self._set_tokens(sample, prompt_tokens)
        if program.worker is None and program.turns == 1:
            needed = prompt_tokens + BUFFER_TOKENS
            fitting = [worker for worker in self._all() if self._room(worker) >= needed]
            if fitting and not self._paused:
                self._count(sample, min(fitting, key=self._used.__getitem__))
            else:
                self._paused[sample] = None
        if program.worker is None:
            program.held_s = now_s
            return False
        return True

    def placed(self, sample: int, worker: int) -> None:
        program = self._programs[sample]
        if program.worker != worker:
            marked = program.marked
            self._uncount(sample)
            self._count(sample, worker)
            if marked:
                self._mark(sample)

    def ended(self, sample: int, context_tokens: int) -> None:
        program = self._programs[sample]
        program.reasoning = False
        marked = program.marked
        if marked:
            self._pause(sample)
        self._set_tokens(sample, context_tokens)

    def finished(self, sample: int) -> None:
        if self._programs[sample].worker is not None:
            self._uncount(sample)
        self._paused.pop(sample, None)
        del self._programs[sample]

    def check(self, now_s: float) -> list[int]:
        sent = [*self._resume_overdue(now_s), *self._resume_what_fits()]
        for worker in self._all():
            if self._room(worker) < 0:
                self._pause_until_safe(worker)
        return sent

    def _all(self) -> range:
        return range(len(self._used))

    def _room(self, worker: int) -> int:
        return self._capacity - self._used[worker] + self._leaving[worker]

    def _resume_overdue(self, now_s: float) -> list[int]:
        overdue = [
            sample
            for sample in self._paused
            if (held_s := self._programs[sample].held_s) is not None and now_s - held_s >= LONGEST_HELD_S
        ]
        for sample in overdue:
            self._resume(sample, min(self._all(), key=self._used.__getitem__))
        return overdue

    def _resume_what_fits(self) -> list[int]:
        rooms = {worker: room for worker in self._all() if (room := self._room(worker)) > BUFFER_TOKENS}
        total, chosen = sum(rooms.values()), []
        for sample in sorted(self._paused, key=self._resumed_by):
            needed = self._programs[sample].tokens + BUFFER_TOKENS
            if needed <= total:
                total -= needed
                chosen.append(sample)
        sent = []
        for sample in sorted(chosen, key=lambda sample: -self._programs[sample].tokens):
            if not rooms:
                break
            program = self._programs[sample]
            roomiest, needed = max(rooms, key=rooms.__getitem__), program.tokens + BUFFER_TOKENS
            if needed > rooms[roomiest]:
                continue
            if program.held_s is not None:
                sent.append(sample)
            self._resume(sample, roomiest)
            rooms[roomiest] -= needed
            if rooms[roomiest] <= BUFFER_TOKENS:
                del rooms[roomiest]
        return sent

    def _resumed_by(self, sample: int) -> tuple[int, int]:
        program = self._programs[sample]
        if program.turns == 1 and program.reasoning:
            return 1, program.tokens
        return (0 if program.reasoning else 2), program.tokens

    def _pause_until_safe(self, worker: int) -> None:
        here = [sample for sample, program in self._programs.items() if program.worker == worker]
        here.sort(key=lambda sample: (self._programs[sample].reasoning, self._programs[sample].tokens))
        for sample in here:
            if self._room(worker) >= 0:
                return
            program = self._programs[sample]
            if not program.reasoning:
                self._pause(sample)
            elif not program.marked:
                self._mark(sample)

    def _pause(self, sample: int) -> None:
        self._uncount(sample)
        self._paused[sample] = None

    def _resume(self, sample: int, worker: int) -> None:
        del self._paused[sample]
        self._programs[sample].held_s = None
        self._count(sample, worker)

    def _mark(self, sample: int) -> None:
        program = self._programs[sample]
        assert program.worker is not None
        program.marked = True
        self._leaving[program.worker] += program.tokens

    def _set_tokens(self, sample: int, tokens: int) -> None:
        program = self._programs[sample]
        if program.worker is not None:
            self._used[program.worker] += tokens - program.tokens
        program.tokens = tokens

    def _count(self, sample: int, worker: int) -> None:
        self._programs[sample].worker = worker
        self._used[worker] += self._programs[sample].tokens + BUFFER_TOKENS
        for group, shared in self._shared(sample):
            self._used[worker] -= shared if self._sharing[worker, group] else 0
            self._sharing[worker, group] += 1

    def _uncount(self, sample: int) -> None:
        program = self._programs[sample]
        worker = program.worker
        assert worker is not None
        self._used[worker] -= program.tokens + BUFFER_TOKENS
        for group, shared in self._shared(sample):
            self._sharing[worker, group] -= 1
            self._used[worker] += shared if self._sharing[worker, group] else 0
        if program.marked:
            self._leaving[worker] -= program.tokens
            program.marked = False
        program.worker = None

    def _shared(self, sample: int) -> Iterable[tuple[int, int]]:
        shared = self._workload.shared_tokens[sample]
        return ((self._workload.group[sample], shared),) if shared else ()
