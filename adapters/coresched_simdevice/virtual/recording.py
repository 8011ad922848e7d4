"""The passes of an engine's policy, written to a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from coresched_sglang.names import ROUTING_PREFIX, ROUTING_RESIDENCY

from coresched.errors import InputError
from coresched_simdevice.virtual.engine import VirtualEngine
from coresched_simdevice.virtual.passes import Pass
from coresched_simdevice.virtual.recorder import PassRecorder, PrefixRecorder
from coresched_simdevice.virtual.residency_recorder import ResidencyRecorder


def pass_recorder(engine: VirtualEngine, write: Callable[[Pass], object]) -> PassRecorder:
    """The recorder of the engine's policy. Raises InputError for a policy whose passes are not recorded."""
    scheduler = engine.scheduler
    recorders: dict[str, type[PassRecorder]] = {
        ROUTING_PREFIX: PrefixRecorder,
        ROUTING_RESIDENCY: ResidencyRecorder,
    }
    recorder = recorders.get(scheduler.schedule_policy)
    if recorder is None or scheduler.policy.ordering is None:
        raise InputError(
            f"schedule_policy is {scheduler.schedule_policy!r}"
            f"{'' if recorder is None else ' without a prefix cache'}; only the passes of "
            f"{' and '.join(recorders)} are recorded"
        )
    return recorder(engine, write)


@contextmanager
def recorded_passes(engine: VirtualEngine, path: str | Path) -> Iterator[None]:
    """Write the passes of an engine to a file, one JSON object a line. Raises as `pass_recorder` does."""
    with open(path, "wb") as file:
        encode = msgspec.json.Encoder().encode
        pass_recorder(engine, lambda one: file.write(encode(one) + b"\n"))
        yield
