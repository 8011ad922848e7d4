"""Where the samples of a run waited, in a line at its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from coresched.client.gate import Gate

if TYPE_CHECKING:
    from coresched_inspect.samples import GatedSample


class Run:
    """The attempts of one run of inspect that have ended, and their waits. In seconds."""

    def __init__(self) -> None:
        self._attempts = 0
        self._failed = 0
        self._stages = 0
        self._admission_s = 0.0
        self._queue_s = 0.0
        self._began = float("inf")
        self._ended = 0.0

    def ended(self, gated: GatedSample, failed: bool) -> None:
        """An attempt that ends now."""
        self._attempts += 1
        self._failed += failed
        self._stages += gated.stages.count
        self._admission_s += gated.sample.admission_wait_s
        self._queue_s += gated.sample.environment_queue_s
        self._began = min(self._began, gated.began)
        self._ended = time.monotonic()

    def line(self, gate: Gate) -> str | None:
        """What a person wants to know of it; None where there is nothing to tell."""
        if not self._attempts:
            return None
        failed = f" ({self._failed} of them failed)" if self._failed else ""
        cap = "no cap" if gate.environment_concurrency is None else gate.environment_concurrency
        return (
            f"coresched: {self._attempts} sample attempts{failed} in {self._ended - self._began:.1f} s, "
            f"C_S {gate.sample_concurrency}, C_E {cap}; mean wait {self._admission_s / self._attempts:.1f} s "
            f"for admission and {self._queue_s / self._attempts:.1f} s for the slots of "
            f"{self._stages / self._attempts:.1f} environment stages"
        )


_runs: dict[str, Run] = {}


def of_run(id: str) -> Run:
    """The run of inspect with this id, from its first ended attempt on."""
    return _runs.setdefault(id, Run())


def show(id: str, gate: Gate) -> None:
    """Print the run's line, after inspect's own display, unless that is off; forget the run."""
    from inspect_ai.util import display_type
    from rich import get_console

    line = _runs.pop(id, Run()).line(gate)
    if line is not None and display_type() != "none":
        get_console().print(line, markup=False, highlight=False)
