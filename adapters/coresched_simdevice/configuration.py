"""Whether the environment asks for the simulated device, and which."""

import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Final, NoReturn

from coresched_engine.virtual.device import SimulatedDevice, read_device

from coresched.errors import InputError

ENABLE: Final = "CORESCHED_SIMDEVICE"


def enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether CORESCHED_SIMDEVICE asks for the device.

    Raises InputError unless it is 1, 0, empty or unset.
    """
    value = environ.get(ENABLE, "")
    if value not in ("", "0", "1"):
        raise InputError(f"{ENABLE} is {value!r}; set it to 1 for the simulated device, or leave it out")
    return value == "1"


@cache
def device() -> SimulatedDevice:
    """This process's device, read once. Raises InputError as `read_device` does."""
    return read_device(os.environ)


def stop(message: str) -> NoReturn:
    """End the process with one line.

    Not with an exception: SGLang logs those of a plugin and goes on, with half a device simulated.
    """
    print(f"coresched_simdevice: {message}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def on_or_stop() -> bool:
    """Whether the device is asked for and usable; what cannot be used ends the process."""
    try:
        return enabled() and device() is not None
    except InputError as error:
        stop(str(error))
