"""One rank's device as its variables describe it: what it holds, and how long its steps take."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from coresched.capacity.sizes import memory_bytes, size_text
from coresched.errors import InputError
from coresched.lab.simulator.model import DEFAULT_MODEL, StepTimes, load_worker_model

MEMORY: Final = "CORESCHED_SIMDEVICE_MEMORY"
WEIGHTS: Final = "CORESCHED_SIMDEVICE_WEIGHTS"
STEP_TIMES: Final = "CORESCHED_SIMDEVICE_STEP_TIMES"
SPEED: Final = "CORESCHED_SIMDEVICE_SPEED"


@dataclass(frozen=True)
class SimulatedDevice:
    """One rank's device: its memory, what the model's weights take of it, and what its steps cost.

    The duration of a step, in seconds, is divided by ``speed``.
    """

    memory_bytes: int
    weights_bytes: int
    times: StepTimes
    speed: float = 1.0


def read_device(environ: Mapping[str, str], called: Mapping[str, str] | None = None) -> SimulatedDevice:
    """The device of the variables.

    Raises InputError naming variable, value and fix; ``called`` has other names for variables.
    """
    names = {name: (called or {}).get(name, name) for name in (MEMORY, WEIGHTS, STEP_TIMES, SPEED)}
    memory = _size(environ, MEMORY, names[MEMORY], "80GiB")
    weights = _size(environ, WEIGHTS, names[WEIGHTS], "50GiB")
    if weights >= memory:
        raise InputError(
            f"{names[WEIGHTS]} is {size_text(weights)}, which leaves nothing of {names[MEMORY]} "
            f"{size_text(memory)} for the pools; both are of one device"
        )
    text = environ.get(SPEED, "1")
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 < speed < math.inf:
        raise InputError(f"{names[SPEED]} is {text!r}; give a number above 0, such as 10")
    try:
        model = load_worker_model(environ.get(STEP_TIMES, DEFAULT_MODEL))
    except InputError as error:
        raise InputError(f"{names[STEP_TIMES]}: {error}") from None
    return SimulatedDevice(memory, weights, model.times, speed)


def _size(environ: Mapping[str, str], variable: str, name: str, example: str) -> int:
    text = environ.get(variable)
    if text is None:
        raise InputError(f"{name} is not set; give it for one device, such as {example}")
    return memory_bytes(text, name)
