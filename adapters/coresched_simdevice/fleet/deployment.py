"""W engines of one set of SGLang's flags, as the deployment that lockstep runs are made on."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from coresched.errors import InputError
from coresched.lab.simulator.memory import SLOT_UNITS, split_memory
from coresched.lab.simulator.model import StepTimes, WorkerModel
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload
from coresched.trajectory.schema import Trajectory
from coresched_simdevice import configuration
from coresched_simdevice.fleet.processes import Engine, Template, template
from coresched_simdevice.fleet.wire import Parsed, Ready
from coresched_simdevice.fleet.workers import EngineWorkers
from coresched_simdevice.launch import on_device, require_sglang
from coresched_simdevice.model_directory import config_file, model_name, write_config_directory

LABEL_CAPACITY = "CORESCHED_LABEL_CAPACITY"
STATELESS_SLOTS = 1000
"""State slots of a running request where the model has no states: their cost is then next to nothing."""


class EngineDeployment:
    """A `Deployment` of SGLang's own schedulers on simulated devices. Made by `engine_deployment`.

    A run sets the policy, C_A, and, at another state ratio than the flags', the pools; all else is the
    flags'.
    """

    def __init__(
        self, processes: Template, parsed: Parsed, ready: Ready, times: StepTimes, name: str
    ) -> None:
        self._template = processes
        self._parsed = parsed
        self._ready = ready
        self._model = worker_model(ready, times, name, mixed=parsed.mixed)

    @property
    def model(self) -> WorkerModel:
        """What the flags make of the device, as a worker model of the simulator's."""
        return self._model

    @property
    def policy(self) -> str:
        """--schedule-policy of the flags, or SGLang's default."""
        return self._parsed.policy

    @property
    def has_states(self) -> bool:
        """Whether the model has recurrent states, so that there are two pools to balance."""
        return self._ready.state_slots is not None

    @contextmanager
    def workers(
        self, batch: Sequence[Trajectory], workload: Workload, settings: RunSettings
    ) -> Iterator[EngineWorkers]:
        """See `Deployment.workers`. Raises ProcessEndedError where an engine ends by itself."""
        if settings.worker_policy not in self._parsed.policies:
            raise InputError(
                f"worker_policy is {settings.worker_policy!r}; this SGLang ({self._parsed.version}) has "
                f"{', '.join(self._parsed.policies)}; coresched doctor says why one of ours is missing"
            )
        with _booted(
            self._template,
            settings.workers,
            {"schedule_policy": settings.worker_policy, **self._pools(settings.state_ratio)},
            {LABEL_CAPACITY: str(settings.label_capacity)},
        ) as (engines, ready):
            yield EngineWorkers(engines, ready, batch, workload, settings.seed)

    def _pools(self, state_ratio: float) -> dict[str, Any]:
        """Fields that set the pools outright, as a plan does; none at the ratio of the flags."""
        if not self.has_states or state_ratio == self._model.default_state_ratio:
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
def engine_deployment(
    model: str,
    device: Mapping[str, str],
    flags: Sequence[str],
    *,
    called: Mapping[str, str],
    policies: Sequence[str] = (),
) -> Iterator[EngineDeployment]:
    """Load SGLang, let one engine boot to see its pools, and keep what the engines of runs are forked from.

    ``model``, ``device``, ``called`` and ``flags`` are as for `launch.serving`; the runs will need SGLang to
    have ``policies``. Raises InputError, before anything boots, for what cannot be used, and
    ProcessEndedError where a process ends by itself.
    """
    times = configuration.read_device(device, called).times
    require_sglang()
    config = config_file(model)
    with tempfile.TemporaryDirectory(prefix="coresched-simulate-") as scratch:
        folder = Path(scratch) / model_name(config)
        write_config_directory(config, folder)
        with template(on_device({**os.environ, **device})) as processes:
            parsed = processes.parse(flags, str(folder))
            if lacking := [policy for policy in policies if policy not in parsed.policies]:
                raise InputError(
                    f"SGLang {parsed.version} does not take --schedule-policy {lacking[0]}; coresched doctor "
                    "says why"
                )
            with _booted(processes, 1, {}, {}) as (_, ready):
                pass
            name = f"SGLang {parsed.version}, {folder.name}"
            yield EngineDeployment(processes, parsed, ready, times, name)


@contextmanager
def _booted(
    processes: Template, count: int, server_args: Mapping[str, object], environment: Mapping[str, str]
) -> Iterator[tuple[list[Engine], Ready]]:
    """Engines that have booted, and what each of them has."""
    engines: list[Engine] = []
    try:
        for number in range(count):
            engines.append(processes.boot(f"worker {number} (SGLang)", server_args, environment))
        ready = [engine.receive(Ready) for engine in engines]
        yield engines, ready[0]
    except BaseException:
        # The template may be in the middle of an answer, so it is not asked whether they have ended.
        for engine in engines:
            engine.kill()
        raise
    for engine in engines:
        engine.end()


def worker_model(ready: Ready, times: StepTimes, name: str, *, mixed: bool = False) -> WorkerModel:
    """The pools of an engine in the terms of the simulator's worker.

    A slot costs as many KV tokens as its bytes. ``mixed`` batches, of prefill and decode, are charged one
    fixed cost for both, so the bounds must not count both.
    """
    if ready.state_slots is None:
        per_request, slot_tokens, slots = STATELESS_SLOTS, 1 / STATELESS_SLOTS, ready.max_running_requests
        slots *= STATELESS_SLOTS
    else:
        per_request, slots = ready.slots_per_request, ready.state_slots
        slot_tokens = ready.state_slot_bytes / ready.kv_token_bytes
    if mixed:
        times = msgspec.structs.replace(times, prefill_batch_s=0.0)
    return WorkerModel(
        name=name,
        description="the pools of an engine, as it reports them",
        pool_tokens=ready.kv_tokens + round(slots * slot_tokens),
        request_state_tokens=max(1, round(per_request * slot_tokens)),
        slots_per_request=per_request,
        running_request_slots=float(per_request),
        default_state_ratio=slots * slot_tokens / ready.kv_tokens,
        page_tokens=ready.page_size,
        prefill_chunk_tokens=ready.prefill_chunk_tokens,
        max_running_requests=ready.max_running_requests,
        overlap_schedule=ready.overlap,
        times=times,
    )
