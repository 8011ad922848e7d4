"""Engines of one set of SGLang's flags, as a deployment."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from coresched_engine.fleet.deployment import EngineDeployment, booted
from coresched_engine.fleet.processes import template
from coresched_engine.virtual.device import read_device
from coresched_engine.virtual.model_config import config_file, model_name, write_config_directory

from coresched.lab.simulator.memory import SLOT_UNITS, split_memory
from coresched.lab.simulator.settings import RunSettings
from coresched_simdevice.launch import on_device, require_sglang


class SglangDeployment(EngineDeployment):
    """SGLang's own schedulers; made by `sglang_deployment`.

    A run sets the policy, C_A, and, at another state ratio than the flags', the pools. SGLang is told that
    replies have their full length, so that it reserves for them.
    """

    longer: ClassVar[str] = "--context-length or --memory"

    def arguments(self, settings: RunSettings) -> dict[str, Any]:
        return {"schedule_policy": settings.worker_policy, **self._pools(settings.state_ratio)}

    def _pools(self, state_ratio: float) -> dict[str, Any]:
        """Fields that set the pools outright, as a plan does; none at the ratio of the flags."""
        if not self.split_pools or state_ratio == self._model.default_state_ratio:
            return {}
        memory = split_memory(self._model, state_ratio)
        fields = {
            "max_mamba_cache_size": memory.slot_units // SLOT_UNITS,
            "max_total_tokens": memory.kv_tokens,
        }
        if "mamba_max_states_per_path" not in self._parsed.given:
            # The plan counts one state for an idle trajectory; by default the engine keeps more.
            fields["mamba_max_states_per_path"] = 1
        return fields


@contextmanager
def sglang_deployment(
    model: str,
    device: Mapping[str, str],
    flags: Sequence[str],
    *,
    called: Mapping[str, str],
    policies: Sequence[str] = (),
) -> Iterator[SglangDeployment]:
    """Load SGLang, let one engine boot to see its pools, and keep what the engines of runs are forked from.

    ``model``, ``device``, ``called`` and ``flags`` are as for `launch.serving`; the runs will need SGLang to
    have ``policies``. Raises InputError, before anything boots, for what cannot be used, and
    ProcessEndedError where a process ends by itself.
    """
    times = read_device(device, called).times
    require_sglang()
    config = config_file(model)
    with tempfile.TemporaryDirectory(prefix="coresched-simulate-") as scratch:
        folder = Path(scratch) / model_name(config)
        write_config_directory(config, folder)
        environment = on_device({**os.environ, **device})
        with template("SGLang", "coresched_simdevice.fleet", environment) as processes:
            parsed = processes.parse(flags, str(folder), policies)
            with booted(processes, 1, {}, {}) as (_, ready):
                pass
            name = f"SGLang {parsed.version}, {folder.name}"
            yield SglangDeployment(processes, parsed, ready, times, name)
