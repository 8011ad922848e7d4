"""One run of an agent as one sample of the gate: admitted, its turns and stages, its end."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from coresched_harness.waits import waits_of

from coresched.client.errors import BatchClosedError, SampleEndedError, SampleTakenError
from coresched.client.gate import Gate, Resident, Sample, Stage, Turn, process_gate
from coresched.client.label import check_header_text

logger = logging.getLogger("minisweagent.coresched")
"""Below mini-swe-agent's logger, so that its console and the run's log file show it."""

_current: ContextVar[Trajectory | None] = ContextVar("coresched_miniswe_trajectory", default=None)
_labels_lock = threading.Lock()
_labels: set[str] = set()  # each is used once in a batch


@dataclass
class Command:
    """How long one command waited for its stage's slot, and how long it ran; seconds."""

    queue_s: float
    execution_s: float = 0.0

    def recorded(self) -> dict[str, float]:
        return {"environment_queue_s": self.queue_s, "environment_s": self.execution_s}


class Trajectory:
    """An admitted sample. `label` is its name, or `name#2` and so on for further attempts at the same task.

    Steps may come from any thread; those of one trajectory wait for each other.
    """

    def __init__(self, gate: Gate, name: str) -> None:
        """Waits for admission. Raises ValueError for a name that no HTTP header can hold."""
        check_header_text(name, "a sample id")
        self.name = name
        self.agent: Any = None
        """The agent that runs it; its limit on wall time is moved by what is waited."""
        self.ended_by_runner = False
        self.failure: type[BaseException] | None = None
        """What its run raised, if it did."""
        self.environment_stages = 0
        self._lock = threading.RLock()
        self._stage: Stage | None = None
        self._running = 0  # commands of the open stage
        self._expected: list[Any] = []  # actions of the reply that did not start yet
        self._resident: Resident | None = None
        self._over = False
        self._sample = _admitted(gate, name)
        self.label = self._sample.id

    @property
    def over(self) -> bool:
        return self._over

    def keep_resident(self) -> None:
        """Wait for one of the gate's resident slots, which is held until the trajectory ends."""
        if self._resident is None:
            resident = self._sample.resident()
            resident.__enter__()
            self._resident = resident
            self.waited(resident.queue_s)

    def run_by(self, agent: Any, waited: bool) -> None:
        """From now on `agent` runs it; `waited` tells whether its clock went during the admission."""
        self.agent = agent
        if waited:
            self.waited(self._sample.admission_wait_s)

    def waited(self, seconds: float) -> None:
        """Take so much out of what counts towards the agent's limit on wall time."""
        if hasattr(self.agent, "_start_time"):
            self.agent._start_time += seconds

    @contextmanager
    def turn(self, exclude: tuple[str, ...] = ()) -> Iterator[Turn]:
        """One attempt at a model call, at none of the workers `exclude` if there are others."""
        with self._lock:
            self._close_stage(None)
        with ExitStack() as stack:
            try:
                turn = stack.enter_context(self._sample.inference(exclude))
            except LookupError:  # there are no other workers
                turn = stack.enter_context(self._sample.inference())
            yield turn

    def expect_commands(self, actions: Iterable[Any]) -> None:
        """What the model asked for: one stage, which holds its slot until the last of them ends."""
        self._expected = list(actions)

    @contextmanager
    def command(
        self, action: Any = None, harmless: type[BaseException] | tuple[()] = ()
    ) -> Iterator[Command]:
        """One command, in the stage that is open or in one of its own. Its clock starts with the slot.

        An `action` that is none of those expected is a stage of its own. One that raises ends the stage, as
        the agent leaves out those behind it; the stage has failed unless that was `harmless`.
        """
        with self._lock:  # commands in parallel wait for the same slot
            if self._stage is None:
                stage = self._sample.environment()
                stage.__enter__()
                self._stage = stage
                self.environment_stages += 1
                command = Command(stage.queue_s)
                self.waited(stage.queue_s)
            else:
                command = Command(0.0)
            self._running += 1
            places = [place for place, one in enumerate(self._expected) if one is action]
            if places:
                del self._expected[places[0]]
            else:
                self._expected = []
        failure: type[BaseException] | None = None
        started = time.monotonic()
        try:
            yield command
        except BaseException as error:
            self._expected = []
            failure = None if isinstance(error, harmless) else type(error)
            raise
        finally:
            command.execution_s = time.monotonic() - started
            with self._lock:
                self._running -= 1
                if self._running == 0 and not self._expected:
                    self._close_stage(failure)

    def _close_stage(self, failure: type[BaseException] | None) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.__exit__(failure, None, None)

    def end(self, failure: type[BaseException] | None = None) -> None:
        """Give back whatever it holds, once."""
        with self._lock:
            if self._over:
                return
            self._over = True
            self.agent = None
            with suppress(BatchClosedError):
                self._close_stage(failure)
                if self._resident is not None:
                    self._resident.__exit__(failure, None, None)
                self._sample.__exit__(failure, None, None)

    def end_later(self) -> None:
        """The same for a finalizer, which may run in the middle of anything."""
        if not self._over:
            with suppress(RuntimeError):  # no thread starts any more at the interpreter's end
                threading.Thread(target=self.end, name="coresched-end", daemon=True).start()

    def info(self) -> dict[str, Any]:
        """What the harness's trajectory file says of it."""
        return {**waits_of(self._sample), "environment_stages": self.environment_stages}


def _admitted(gate: Gate, name: str) -> Sample:
    for attempt in itertools.count(1):
        label = name if attempt == 1 else f"{name}#{attempt}"
        with _labels_lock:
            if label in _labels:
                continue
            _labels.add(label)
        sample = gate.sample(label)
        try:
            return sample.__enter__()
        except (SampleEndedError, SampleTakenError):  # of an earlier or another process of the same batch
            continue
    raise AssertionError("unreachable")


def current_trajectory() -> Trajectory | None:
    """The one that runs in this thread."""
    found = _current.get()
    return None if found is None or found.over else found


@contextmanager
def entered(running: Trajectory) -> Iterator[None]:
    """Make it the one that runs in this thread."""
    token = _current.set(running)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def trajectory(name: str | None = None) -> Iterator[Trajectory | None]:
    """One trajectory around whatever an agent does in this thread, for agents that are no `DefaultAgent`.

    `name` is its label; without one it gets a random name. Waits for admission. Without a gate, and inside
    another trajectory, nothing happens, and the block gets None or that one.
    """
    outer = current_trajectory()
    gate = process_gate()
    if outer is not None or gate is None:
        yield outer
        return
    inner = Trajectory(gate, name or random_name())
    failure: type[BaseException] | None = None
    try:
        with entered(inner):
            yield inner
    except BaseException as error:
        failure = type(error)
        raise
    finally:
        inner.end(failure)


def random_name() -> str:
    return f"mini-{uuid.uuid4().hex[:12]}"
