"""Engines of one set of vLLM's flags, as a deployment."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata, util
from pathlib import Path
from typing import Any, ClassVar

from coresched_engine.fleet.deployment import EngineDeployment, booted
from coresched_engine.fleet.processes import template
from coresched_engine.virtual.device import read_device
from coresched_engine.virtual.model_config import config_file, model_name, write_config_directory

from coresched.errors import InputError
from coresched.lab.simulator.settings import RunSettings
from coresched_vllm.fleet.names import ORDERED, POLICY
from coresched_vllm.virtual.boot import ENVIRONMENT

PLUGIN = "coresched"
"""Our entry point among vLLM's plugins."""


class VllmDeployment(EngineDeployment):
    """vLLM's own schedulers; made by `vllm_deployment`. A run sets the scheduler's class, and C_A."""

    longer: ClassVar[str] = "--max-model-len or --memory"

    def arguments(self, settings: RunSettings) -> dict[str, Any]:
        return {} if settings.worker_policy == self.policy else ORDERED


@contextmanager
def vllm_deployment(
    model: str,
    device: Mapping[str, str],
    flags: Sequence[str],
    *,
    called: Mapping[str, str],
    routing_prefix: bool,
) -> Iterator[VllmDeployment]:
    """Load vLLM, let one engine boot to see its pool, and keep what the engines of runs are forked from.

    ``model`` is a config.json or its folder, ``device`` has the variables of
    `coresched_engine.virtual.device`, which errors name as ``called`` does, and ``flags`` are those of `vllm
    serve`. ``routing_prefix`` is whether a run will need that order. Raises InputError, before anything
    boots, for what cannot be used, and ProcessEndedError where a process ends by itself.
    """
    times = read_device(device, called).times
    _require_vllm()
    config = config_file(model)
    with tempfile.TemporaryDirectory(prefix="coresched-simulate-") as scratch:
        folder = Path(scratch) / "models" / model_name(config)
        write_config_directory(config, folder)
        # What vLLM leaves in a temporary folder goes with this one, however it ends.
        environment = {**on_device(os.environ, device), "TMPDIR": scratch}
        with template("vLLM", "coresched_vllm.fleet", environment) as processes:
            parsed = processes.parse(flags, str(folder), [POLICY] if routing_prefix else [])
            with booted(processes, 1, {}, {}) as (_, ready):
                pass
            yield VllmDeployment(processes, parsed, ready, times, f"vLLM {parsed.version}, {folder.name}")


def on_device(environ: Mapping[str, str], device: Mapping[str, str]) -> dict[str, str]:
    """The environment of vLLM's processes on the simulated device whose variables ``device`` has."""
    if (chosen := environ.get("VLLM_PLUGINS")) is not None:
        plugins = chosen.split(",")
    else:
        points = metadata.entry_points()
        plugins = [
            point.name
            for group in sorted(points.groups)
            if group.startswith("vllm.")
            for point in points.select(group=group)
        ]
    return {
        "OMP_NUM_THREADS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        **environ,
        **ENVIRONMENT,
        **device,
        # Not ours, which is for the front end of a server: it would serve metrics.
        "VLLM_PLUGINS": ",".join(name for name in plugins if name != PLUGIN),
    }


def _require_vllm() -> None:
    if util.find_spec("vllm") is None:
        raise InputError(
            f"vLLM is not installed for {sys.executable}; install it there: pip install 'coresched[vllm]'"
        )
