"""SGLang's Scheduler made in this process, as its server makes it in a process of its own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from coresched_engine.virtual.device import MEMORY, WEIGHTS

from coresched.errors import InputError
from coresched_simdevice.configuration import ENABLE, enabled
from coresched_simdevice.virtual.clock import VirtualClock, VirtualTime

# What the simulated device needs, unless the caller says otherwise. Without a tokenizer: requests are tokens.
DEVICE_ARGS: Mapping[str, object] = {
    "device": "cpu",
    "load_format": "dummy",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "cuda_graph_backend_decode": "disabled",
    "cuda_graph_backend_prefill": "disabled",
    "skip_tokenizer_init": True,
    "log_level": "warning",
    # It would end the process where the driver of the engine takes its time.
    "watchdog_timeout": 1e8,
}

# Modules that stamp requests, or decide by a clock. The caches' own clocks are left: they only order
# accesses, and several of them at the same virtual time would be ties.
CLOCKED_MODULES = (
    "sglang.srt.observability.req_time_stats",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.scheduler_components.flush_wrapper",
    "sglang.srt.managers.scheduler_components.metrics_reporter",
    "sglang.srt.managers.prefill_delayer",
)


_booted = False


def load_sglang() -> None:
    """Import SGLang and its plugins. Raises InputError without the simulated device."""
    if not enabled():
        raise InputError(f"{ENABLE} is not set; set it to 1, and with it {MEMORY} and {WEIGHTS}")
    from sglang.srt.plugins import load_plugins

    load_plugins()
    import sglang.srt.managers.scheduler  # noqa: F401


def boot_scheduler(server_args: Mapping[str, object], clock: VirtualClock) -> Any:
    """Make SGLang's Scheduler for ``server_args`` (fields of ServerArgs), on ``clock``.

    Once in a process: SGLang keeps its settings in globals. Raises InputError where the arguments cannot be
    used in virtual time, or SGLang refuses them.
    """
    global _booted
    if _booted:
        raise InputError("an engine was made in this process before; each needs a process of its own")
    if "model_path" not in server_args:
        raise InputError("server_args has no model_path; give the directory of a config.json")
    load_sglang()
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import PortArgs, ServerArgs
    from sglang.srt.utils import configure_logger

    chosen = {**DEVICE_ARGS, **server_args}
    if unknown := sorted(chosen.keys() - signature(ServerArgs).parameters.keys()):
        raise InputError(f"server_args has {', '.join(unknown)}; SGLang's ServerArgs has no such field")
    _booted = True
    with _refusals():
        arguments = ServerArgs(**chosen)
        arguments.resolve_once()
        arguments.check_server_args()
    configure_logger(arguments)
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0))
    for name in CLOCKED_MODULES:
        import_module(name).time = VirtualTime(clock)  # type: ignore[attr-defined]
    _stamp_delays(clock)
    ports = PortArgs.init_new(arguments)
    try:
        with _refusals():
            scheduler = Scheduler(arguments, ports)
    finally:
        _remove_sockets(ports)
    _remove_load_snapshots(scheduler)
    return scheduler


def _stamp_delays(clock: VirtualClock) -> None:
    """Let the prefill delayer's waits begin by ``clock``: their default is the real one, bound at import."""
    module: Any = import_module("sglang.srt.managers.prefill_delayer")
    state = module._State
    module._State = lambda: state(start_time=clock.now())


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (ValueError, AssertionError, OSError) as error:
        raise InputError(f"SGLang refuses server_args: {' '.join(str(error).split())}") from error


def _remove_sockets(ports: Any) -> None:
    """The files that reserve the names of its sockets, which nobody else will open."""
    for field in fields(ports):
        name = getattr(ports, field.name)
        if isinstance(name, str) and name.startswith("ipc://"):
            Path(name.removeprefix("ipc://")).unlink(missing_ok=True)


def _remove_load_snapshots(scheduler: Any) -> None:
    """The shared memory in which a tokenizer process would read the load."""
    writer, scheduler.load_snapshot_writer = scheduler.load_snapshot_writer, None
    if writer is not None and (path := getattr(writer, "path", None)):
        writer.close()
        Path(path).unlink(missing_ok=True)
