"""One run of a harness under the gate, from its environment variables to the line that sums it up."""

from __future__ import annotations

import itertools
import secrets
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from coresched.client.errors import ServiceError
from coresched.client.gate import Gate, process_gate
from coresched.errors import InputError
from coresched_harness.held import GateFailure
from coresched_harness.waits import too_few_samples

_LEAVING_S = 2.0


def say(text: str) -> None:
    """One line on standard error, where results are not."""
    print(f"coresched: {text}", file=sys.stderr, flush=True)


def open_gate(harness: str) -> Gate | None:
    """This process's gate; None, and a line that says so, where the environment asks for none.

    Raises SystemExit where the environment is wrong (2) or the service does not answer (1).
    """
    try:
        gate = process_gate()
    except (ValueError, ServiceError) as error:
        say(f"error: {error}")
        raise SystemExit(2 if isinstance(error, ValueError) else 1) from None
    if gate is None:
        say(f"off: CORESCHED_SAMPLE_CONCURRENCY is not set; this is plain {harness}")
    return gate


def warn_below(gate: Gate, option: str, given: int) -> None:
    """Say once that the harness's own limit, `given` by `option`, keeps the gate from its C_S."""
    if text := too_few_samples(gate, option, given):
        say(f"warning: {text}")


class Labels:
    """Sample ids, unique per attempt: the task's id, with `#2` and so on at later attempts of this process.

    `shared` is for a batch that other processes have too, or an earlier run had: a mark of this process
    follows.
    """

    def __init__(self, shared: bool) -> None:
        self._mark = f"@{secrets.token_hex(3)}" if shared else ""
        self._attempts: defaultdict[str, itertools.count[int]] = defaultdict(lambda: itertools.count(1))
        self._lock = threading.Lock()

    def of(self, task: str) -> str:
        """The id of the task's next attempt."""
        with self._lock:
            attempt = next(self._attempts[task])
        return f"{task}{'' if attempt == 1 else f'#{attempt}'}{self._mark}"


@contextmanager
def gated_run(gate: Gate, go_on: str) -> Iterator[None]:
    """The harness's run is the block: how it ends is said, and the line that sums it up.

    Raises SystemExit for an InputError (2) and for a GateFailure (1); `go_on` says how to go on after that.
    Ctrl-C closes the gate, so that threads which wait for a slot, or take one more step, end: a harness's
    pool of threads waits for all that were begun, which would run their tasks to the end.
    """
    before = signal.signal(signal.SIGINT, _closing(gate))
    try:
        yield
    except InputError as error:
        say(f"error: {error}")
        raise SystemExit(2) from None
    except GateFailure as failure:
        _sum_up(gate)
        say(f"error: {failure}; {go_on}")
        raise SystemExit(1) from None
    except BaseException:
        _sum_up(gate)
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    _sum_up(gate)


def _closing(gate: Gate) -> Callable[[int, FrameType | None], None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        closing = threading.Thread(target=gate.close, daemon=True)  # it takes locks, as a handler must not
        closing.start()
        closing.join(_LEAVING_S)  # a harness may end the process at once
        raise KeyboardInterrupt

    return interrupt


def _sum_up(gate: Gate) -> None:
    """Leave the batch, and say what it saw; at a service, what all its processes did so far."""
    try:
        gate.close()
    except ServiceError as error:
        say(f"warning: {error}")
    totals = gate.report().totals
    capacity = gate.environment_concurrency
    makespan = "none finished" if totals.makespan_s is None else f"makespan {totals.makespan_s:.2f} s"
    say(
        f"C_S={gate.sample_concurrency} C_E={'no cap' if capacity is None else capacity}: "
        f"{totals.finished} samples finished, {totals.withdrawn} withdrawn, {makespan}; "
        f"{totals.turns} turns ({totals.inference_s:.2f} s), "
        f"{totals.environment_stages} environment stages ({totals.environment_s:.2f} s, "
        f"after {totals.environment_queue_s:.2f} s in the queue); "
        f"admission waits {totals.admission_wait_s:.2f} s"
    )
